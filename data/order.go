package data

import "math"

// order is a random permutation of 0 to n-1 that takes no memory per element: a Feistel
// network over pairs (left, right), which stand for the number left·width + right. There
// are slightly more pairs than n. A result of n or more goes through the network again
// until it is below n, which keeps the map a bijection.
type order struct {
	n, height, width uint64
	keys             [orderRounds]uint64
}

// orderRounds is the number of rounds; half as many already look random.
const orderRounds = 8

// newOrder returns the order of n documents in an epoch.
func newOrder(n int64, seed, epoch uint64) order {
	o := order{n: uint64(n)}
	o.height = max(uint64(math.Sqrt(float64(n))), 1)
	o.width = (o.n + o.height - 1) / o.height
	state := mix(mix(seed) ^ epoch)
	for i := range o.keys {
		state = mix(state)
		o.keys[i] = state
	}
	return o
}

// at returns the document at place i, for 0 <= i < n.
func (o order) at(i int64) int64 {
	x := o.pass(uint64(i))
	for x >= o.n {
		x = o.pass(x)
	}
	return int64(x)
}

func (o order) pass(x uint64) uint64 {
	left, right := x/o.width, x%o.width
	for i := 0; i < orderRounds; i += 2 {
		left = (left + mix(right^o.keys[i])%o.height) % o.height
		right = (right + mix(left^o.keys[i+1])%o.width) % o.width
	}
	return left*o.width + right
}

// mix is a step of SplitMix64: every bit of x affects every bit of the result.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
