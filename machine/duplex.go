package machine

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Duplex is what a link carries while both its directions are busy, as a share of what
// they carry alone, taken together: at 1 each has its full rate, at 1/2 they take turns.
type Bidirectional float64

// The ends between which links lie.
const (
	HalfDuplex Bidirectional = 0.5
	FullDuplex Bidirectional = 1
)

// check refuses what no link is: two directions that carry less than in turns, or more
// than alone.
func (d Bidirectional) check() error {
	if !(d >= HalfDuplex && d <= FullDuplex) {
		return fmt.Errorf("both ways at once carry %v of what they carry alone; that is between %v, one way at a time, and %v", d, HalfDuplex, FullDuplex)
	}
	return nil
}

// String is the share in percent.
func (d Bidirectional) String() string { return strconv.FormatFloat(100*float64(d), 'f', 1, 64) + "%" }

// UnmarshalJSON reads the number, or true and false as older files have them: both ways at
// their full rate, or one at a time.
func (d *Bidirectional) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "true":
		*d = FullDuplex
		return nil
	case "false":
		*d = HalfDuplex
		return nil
	}
	return json.Unmarshal(text, (*float64)(d))
}

// duplex is a link's figure: "duplex=92%".
type bidirectional Bidirectional

// halfDuplex is the word for a link whose directions take turns.
const halfDuplex = "half-duplex"

func (d *bidirectional) parse(text string) error {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil {
		return fmt.Errorf("%q is no share; write it like 92%%", text)
	}
	*d = bidirectional(v)
	return Bidirectional(v).check()
}

func (d *bidirectional) exact() string    { return strconv.FormatFloat(float64(*d), 'g', -1, 64) }
func (d *bidirectional) String() string   { return Bidirectional(*d).String() }
func (d *bidirectional) zero() bool       { return *d == 0 }
func (d *bidirectional) copyFrom(f field) { *d = *f.(*bidirectional) }
