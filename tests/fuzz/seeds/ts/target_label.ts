@targetlabel true
@data
1,2,3:0.75
