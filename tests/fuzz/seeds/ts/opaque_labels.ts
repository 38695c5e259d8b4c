@classLabel true -1.0 1.0 A/B "x
@data
1,2:-1.0
1,2:1.0
3,4:A/B
5,6:"x
