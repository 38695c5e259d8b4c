@problemName Small
@timeStamps false
@missing false
@univariate false
@dimensions 2
@equalLength true
@seriesLength 3
@classLabel true up down
@data
1e308,-1e39,1e-400:0x1p3,inf,-nan:up
1e99999,--1,1.2.3:4,5,6:down
