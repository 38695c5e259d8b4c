@frequency 10
@
@ data
@classLabel
@data
1:a
