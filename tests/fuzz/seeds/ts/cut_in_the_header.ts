@problemName Small
@timeSt