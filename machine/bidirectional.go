package machine

import (
	"fmt"
	"strconv"
	"strings"
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

// bidirectional is the figure of a link: "bidirectional=92%".
type bidirectional Bidirectional

// halfDuplex is the word for a link whose directions take turns.
const halfDuplex = "half-duplex"

func (b *bidirectional) parse(text string) error {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil {
		return fmt.Errorf("%q is no share; write it like 92%%", text)
	}
	*b = bidirectional(v)
	return Bidirectional(v).check()
}

func (b *bidirectional) exact() string    { return strconv.FormatFloat(float64(*b), 'g', -1, 64) }
func (b *bidirectional) String() string   { return Bidirectional(*b).String() }
func (*bidirectional) example() string    { return "92%" }
func (b *bidirectional) zero() bool       { return *b == 0 }
func (b *bidirectional) copyFrom(f field) { *b = *f.(*bidirectional) }
