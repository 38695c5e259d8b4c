@problemName Small
@timeStamps false
@missing false
@univariate false
@dimensions 2
@equalLength false
@classLabel true up down
@data
1,2,3,4:5,6,7,8:up
1:2:down
