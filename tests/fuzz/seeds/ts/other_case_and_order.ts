@CLASSLABEL TRUE a b
@Dimension 2
@timestamps False
@equallength true
@DATA
1,2:3,4:a
5,6:7,8:b
