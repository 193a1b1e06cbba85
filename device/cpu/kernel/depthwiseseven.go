package kernel

// Seven are some places of a line of a depthwise convolution whose windows have seven places along a line that lie side by side and
// move by one, of SevenLanes channels after another. A place of x is loaded once for up to seven sums in registers.
type Seven struct {
	X      *float32 // the first line of the windows that lies inside
	XLine  int      // from line to line
	Lines  int      // those inside
	W      *float32 // the weights of that line, [lines of a window 7 SevenLanes], then the bias, and then those of the next channels
	WNext  int      // from some channels to the next
	Bias   int      // from W to the bias
	Y      *float32
	Step   int // from place to place, in x and y
	Groups int // of SevenLanes channels
	First  int // the column of x where the first window begins: below zero before the line
	inside int // a bit for each column from First on: those in the line
}

// SevenLanes is how many channels are computed at once, sevenMost and sevenLeast are how many places.
const (
	SevenLanes            = 16
	sevenMost, sevenLeast = 8, 4
	sevenColumns          = sevenMost + 6
)

// A sevenFunc convolves so many places of y.
type sevenFunc func(t *Seven)

// HasSeven says that this path has such pieces, for lines of so many places.
func HasSeven(places int) bool { return active.seven[sevenLeast] != nil && places >= sevenLeast }

// SevenPlaces is how many places of a line of so many are computed at once: where they do not divide it, the last begin earlier.
func SevenPlaces(places int) int {
	best, least := 0, 0
	for n, f := range active.seven {
		if cost := ceil(places, max(n, 1)) * n; f != nil && n <= places && (best == 0 || cost <= least) {
			best, least = n, cost
		}
	}
	return best
}

// Convolve makes so many places of y, a number that SevenPlaces gave, from lines of so many columns of x.
func (t *Seven) Convolve(places, columns int) {
	t.inside = 0
	for i := range sevenColumns {
		if at := t.First + i; at >= 0 && at < columns {
			t.inside |= 1 << i
		}
	}
	active.seven[places](t)
}

// sevenGo are the plain functions by their number of places.
func sevenGo() (fs [sevenMost + 1]sevenFunc) {
	for _, n := range []int{sevenLeast, 7, sevenMost} {
		fs[n] = func(t *Seven) {
			for c := range t.Groups * SevenLanes {
				w := c/SevenLanes*t.WNext + c%SevenLanes
				for place := range n {
					sum := *at(t.W, w+t.Bias)
					for k := range 7 * t.Lines {
						if column := place + k%7; t.inside>>column&1 > 0 {
							sum += *at(t.X, k/7*t.XLine+(t.First+column)*t.Step+c) * *at(t.W, w+k*SevenLanes)
						}
					}
					*at(t.Y, place*t.Step+c) = sum
				}
			}
		}
	}
	return fs
}
