package kernel

// Largest updates the largest elements seen so far, and where they were: where x is above top, top becomes x and at becomes place.
// Of equal ones the first counts, and a NaN is above nothing.
func Largest(top []float32, at []int32, x []float32, place int32) {
	whole := 0
	if active.largest != nil && len(top) >= largestLanes {
		whole = len(top) / largestLanes * largestLanes
		active.largest(&top[0], &at[:len(top)][0], &x[:len(top)][0], whole, place)
	}
	for i := whole; i < len(top); i++ {
		if v := x[i]; v > top[i] {
			top[i], at[i] = v, place
		}
	}
}

// largestLanes is how many elements are compared at once.
const largestLanes = 8
