@problemName One
@univariate true
@classLabel true 1 2
@data
1,2,3:1
4,5,6:2
