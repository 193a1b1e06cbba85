package kernel

// GroupsThree is a Three of groups of Each channels, in x and in y, where Each divides GroupLanes: the lanes of a register are the
// channels of y of whole groups. To multiply, channel k of each group of x is copied to all lanes of its group by one permutation of a register,
// which serves up to nine sums.
//
// Weights are [Vectors Each 9 GroupLanes]: of each channel k of a group, for each place of a window, what the lanes multiply it by. Sums are the
// same with channels of y and x changed: lanes are channels of x, and Each runs over channels of y.
type GroupsThree struct {
	Three
	Each    int
	Vectors int // of GroupLanes channels, from X, Y and Bias on
}

// GroupLanes is how many channels of a place are computed at once.
const GroupLanes = 16

// A groupsThreeFunc does for groups what a threeFunc does.
type groupsThreeFunc func(t *GroupsThree)

// HasGroupsThree says that this path has windows of 3 × 3 of groups as pieces.
func HasGroupsThree() bool { return active.groupsThree[1] != nil }

// Convolve makes so many lines of y.
func (t *GroupsThree) Convolve(lines int) { t.run(&active.groupsThree, lines) }

// AddWeights adds what so many lines give to the gradients of weights.
func (t *GroupsThree) AddWeights(lines int) { t.run(&active.groupsThreeWeights, lines) }

// GatherRoom is the room that AddGathered needs for lines of so many places of x and y.
func GatherRoom(x, y int) int { return ((ThreeRows+2)*x + ThreeRows*y) * GroupLanes }

// AddGathered is AddWeights of one vector after another, whose places are copied one behind the other first.
func (t *GroupsThree) AddGathered(lines int, room []float32) {
	places := t.Columns - t.Skip + t.Tail
	for v := range t.Vectors {
		one, to := *t, room
		gather := func(from *float32, n int) *float32 {
			own := to[:n*GroupLanes]
			to = to[len(own):]
			active.planeFill(&own[0], PlaneCols, GroupLanes, at(from, v*GroupLanes), t.Step, GroupLanes/PlaneCols, n)
			return &own[0]
		}
		for i := range lines + 2 {
			one.X[i] = gather(t.X[i], t.Columns)
		}
		for i := range lines {
			if line := gather(at(t.Y, i*t.YStep), places); i == 0 {
				one.Y = line
			}
		}
		one.Step, one.YStep, one.Vectors, one.Sums = GroupLanes, places*GroupLanes, 1, at(t.Sums, v*t.Each*9*GroupLanes)
		one.AddWeights(lines)
	}
}

// run takes the function for the most lines as often as it fits, then the next.
func (t *GroupsThree) run(fs *[ThreeRows + 1]groupsThreeFunc, lines int) {
	for n := ThreeRows; lines > 0; n-- {
		for ; fs[n] != nil && lines >= n; lines -= n {
			fs[n](t)
			t.next(n, lines)
		}
	}
}

// each calls f for every multiplication of a line of y: of place `place` of y and channel c of it, and column `column` of x and channel
// k of the group; tap is the place of the window.
func (t *GroupsThree) each(f func(place, c, column, k, ky, kx int)) {
	t.places(func(place, kx, column int) {
		for ky := range 3 {
			for c := range t.Vectors * GroupLanes {
				for k := range t.Each {
					f(place, c, column, k, ky, kx)
				}
			}
		}
	})
}

// at is where the weight of a channel, one of its group and a place of a window lies.
func (t *GroupsThree) at(c, k, ky, kx int) int {
	return ((c/GroupLanes*t.Each+k)*9+3*ky+kx)*GroupLanes + c%GroupLanes
}

// groupsThreeGo are the plain functions by their number of lines.
func groupsThreeGo() (fs [ThreeRows + 1]groupsThreeFunc) {
	for lines := 1; lines <= ThreeRows; lines++ {
		fs[lines] = func(t *GroupsThree) {
			for r := range lines {
				for place := range t.Columns - t.Skip + t.Tail {
					for c := range t.Vectors * GroupLanes {
						y := at(t.Y, r*t.YStep+place*t.Step+c)
						if *y = 0; t.Bias != nil {
							*y = *at(t.Bias, c)
						}
					}
				}
				t.each(func(place, c, column, k, ky, kx int) {
					x := *at(t.X[r+ky], column*t.Step+c/t.Each*t.Each+k)
					*at(t.Y, r*t.YStep+place*t.Step+c) += x * *at(t.W, t.at(c, k, ky, kx))
				})
			}
		}
	}
	return fs
}

func groupsThreeWeightsGo() (fs [ThreeRows + 1]groupsThreeFunc) {
	for lines := 1; lines <= ThreeRows; lines++ {
		fs[lines] = func(t *GroupsThree) {
			for r := range lines {
				t.each(func(place, c, column, k, ky, kx int) {
					dy := *at(t.Y, r*t.YStep+place*t.Step+c/t.Each*t.Each+k)
					*at(t.Sums, t.at(c, k, ky, kx)) += dy * *at(t.X[r+ky], column*t.Step+c)
				})
			}
		}
	}
	return fs
}
