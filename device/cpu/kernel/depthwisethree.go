package kernel

// Three is a piece of a depthwise convolution with windows of 3 × 3 places that lie side by side and move by one: up to ThreeRows lines
// of y, whose windows share lines of x, so that a place of x is loaded once for several sums in registers. Places of lines are Step
// apart, in x and y.
//
// Columns of x run from the first that a window of the piece sees. Skip says after how many of them the first place of y is complete, and
// Tail how many places of y are complete without a further column: those whose windows reach beyond the line.
type Three struct {
	X          [ThreeRows + 2]*float32 // lines of x; a line outside is a line of zeros
	W          *float32                // as ThreeAt says, those of channels that are missing too
	Y          *float32                // the first line of y, or of its gradient
	YStep      int                     // from line to line of y
	Bias       *float32                // of a GroupsThree; may be nil
	Columns    int
	Skip, Tail int
	Step       int      // channels
	Sums       *float32 // of gradients of weights, as ThreeSumAt says
}

// threeLanes is how many channels are computed at once.
const threeLanes = 16

// ThreeAt is where the weight of a channel lies for a place of a window, and, as a tenth place, its bias.
func ThreeAt(channel, place int) int { return threeAt(10, channel, place) }

// ThreeSumAt is where the gradient of a channel's weight lies for a place of a window.
func ThreeSumAt(channel, place int) int { return threeAt(9, channel, place) }

func threeAt(places, channel, place int) int {
	return (channel/threeLanes*places+place)*threeLanes + channel%threeLanes
}

// ThreeWeights and ThreeSums are how many elements so many channels take.
func ThreeWeights(channels int) int { return roundUp(channels, threeLanes) * 10 }
func ThreeSums(channels int) int    { return roundUp(channels, threeLanes) * 9 }

// ThreeRows is how many lines a Three has at most.
const ThreeRows = 4

// A threeFunc convolves, or adds to Sums what x gives with y, a gradient.
type threeFunc func(t *Three)

// HasThree says that this path has windows of 3 × 3 as pieces.
func HasThree() bool { return active.three[1] != nil }

// Convolve makes so many lines of y.
func (t *Three) Convolve(lines int) { t.run(&active.three, lines) }

// AddWeights adds what so many lines give to the gradients of weights.
func (t *Three) AddWeights(lines int) { t.run(&active.threeWeights, lines) }

// run takes the function for the most lines as often as it fits, then the next.
func (t *Three) run(fs *[ThreeRows + 1]threeFunc, lines int) {
	for n := ThreeRows; lines > 0; n-- {
		for ; fs[n] != nil && lines >= n; lines -= n {
			fs[n](t)
			t.next(n, lines)
		}
	}
}

// next moves on by n of so many lines, where some are left.
func (t *Three) next(n, lines int) {
	if lines > n {
		copy(t.X[:], t.X[n:])
		t.Y = at(t.Y, n*t.YStep)
	}
}

// places calls f for each place of a line of y, and for each column of x its window sees.
func (t *Three) places(f func(place, kx, column int)) {
	for place := range t.Columns - t.Skip + t.Tail {
		for kx := range 3 {
			if column := place + t.Skip - 2 + kx; column >= 0 && column < t.Columns {
				f(place, kx, column)
			}
		}
	}
}

// threeGo are the plain functions by their number of lines.
func threeGo() (fs [ThreeRows + 1]threeFunc) {
	for lines := 1; lines <= ThreeRows; lines++ {
		fs[lines] = func(t *Three) {
			for r := range lines {
				for place := range t.Columns - t.Skip + t.Tail {
					for c := range t.Step {
						*at(t.Y, r*t.YStep+place*t.Step+c) = *at(t.W, ThreeAt(c, 9))
					}
				}
				t.places(func(place, kx, column int) {
					for ky := range 3 {
						for c := range t.Step {
							*at(t.Y, r*t.YStep+place*t.Step+c) += *at(t.X[r+ky], column*t.Step+c) * *at(t.W, ThreeAt(c, 3*ky+kx))
						}
					}
				})
			}
		}
	}
	return fs
}

func threeWeightsGo() (fs [ThreeRows + 1]threeFunc) {
	for lines := 1; lines <= ThreeRows; lines++ {
		fs[lines] = func(t *Three) {
			for r := range lines {
				t.places(func(place, kx, column int) {
					for ky := range 3 {
						for c := range t.Step {
							*at(t.Sums, ThreeSumAt(c, 3*ky+kx)) += *at(t.X[r+ky], column*t.Step+c) * *at(t.Y, r*t.YStep+place*t.Step+c)
						}
					}
				})
			}
		}
	}
	return fs
}
