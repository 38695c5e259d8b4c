#A comment.
@problemName Small
@timeStamps false
@missing false
@univariate false
@dimensions 2
@equalLength true
@seriesLength 3
@classLabel true up down
@data
1,2,3:-1,-2.5,3e-2:up
0.5,+1,.5:4,5,6.:down
