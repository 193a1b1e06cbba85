package kernel

func largestAVX2(top *float32, at *int32, x *float32, n int, place int32)
