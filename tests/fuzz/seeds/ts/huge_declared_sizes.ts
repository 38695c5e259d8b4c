@dimensions 999999999999
@seriesLength 99999999999999999999
@classLabel true a
@data
1:a
