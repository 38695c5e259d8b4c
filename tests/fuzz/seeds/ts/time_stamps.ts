@timeStamps true
@classLabel true 0 1
@data
(0,1.5),(1,2.5):(0,3),(1,4):0
(2020-01-01 00-00-00,1):(2,3):1
