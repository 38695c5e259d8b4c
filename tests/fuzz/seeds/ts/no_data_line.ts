@problemName Small
1,2,3:a
