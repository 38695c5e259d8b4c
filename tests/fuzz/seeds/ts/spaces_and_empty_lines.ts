  @problemName  Small 

@classLabel	true  up   down
@data

 1 , 2 : 3 , 4 : up 

	5,6:7,8:down

