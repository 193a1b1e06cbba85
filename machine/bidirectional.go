package machine

import (
	"fmt"
	"strconv"
)

// Bidirectional is what a link carries while both directions are busy, as a share of the
// sum of what each carries alone: at 1 each has its full rate, at 1/2 they take turns.
type Bidirectional float64

// The limits between which all links are.
const (
	HalfDuplex Bidirectional = 0.5
	FullDuplex Bidirectional = 1
)

// check refuses a share that no link has.
func (b Bidirectional) check() error {
	if !(b >= HalfDuplex && b <= FullDuplex) {
		return fmt.Errorf("both directions together carry %v of what they carry alone; it must be between %v (one at a time) and %v", b, HalfDuplex, FullDuplex)
	}
	return nil
}

// String is the share in percent.
func (b Bidirectional) String() string { return strconv.FormatFloat(100*float64(b), 'f', 1, 64) + "%" }

// halfDuplex is the word for a link whose directions take turns.
const halfDuplex = "half-duplex"
