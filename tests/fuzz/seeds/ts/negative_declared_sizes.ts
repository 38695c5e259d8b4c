@dimensions -1
@seriesLength x
@equalLength maybe
@data
1:a
