@problemName Small
@timeStamps false
@missing true
@univariate false
@dimensions 2
@equalLength true
@seriesLength 3
@classLabel true up down
@data
1,?,3:NaN,5,?:up
?,?,?:1,2,3:down
