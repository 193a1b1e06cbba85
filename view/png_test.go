package view

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"strconv"
	"strings"
	"testing"
)

// A PNG has the shapes of the SVG at their places, in the colours of both schemes: the middle
// of each rectangle that nothing covers, of an area, and of strokes.
func TestPNGHasTheShapes(t *testing.T) {
	run, state := ColourOf("weight"), ColourOf("state")
	p := Picture{Width: 100, Height: 60, Title: "t"}
	p.rect(10, 10, 20, 10, run, "")
	p.rect(40.25, 10, 20.5, 10, state, "")
	p.line(0, 30.5, 100, 30.5, ink("ink"))
	p.area([]float64{70, 90, 90, 70}, []float64{5, 5, 25, 25}, run, 0)
	p.area([]float64{70, 90, 90, 70}, []float64{40, 40, 55, 55}, run, 0.25)
	p.path([]float64{10, 30, 50}, []float64{50, 40, 50}, state)
	p.path([]float64{0, 100}, []float64{58, 58}, run, 5, 5)
	for _, scheme := range []Scheme{Light, Dark} {
		var b bytes.Buffer
		if err := p.PNG(&b, scheme); err != nil {
			t.Fatal(err)
		}
		decoded, err := png.Decode(&b)
		if err != nil {
			t.Fatal(err)
		}
		if got := decoded.Bounds(); got != image.Rect(0, 0, 200, 120) {
			t.Fatalf("the picture is %v", got)
		}
		c := canvas{scheme: scheme}
		at := func(what string, x, y float64, want color.RGBA) {
			t.Helper()
			got := color.RGBAModel.Convert(decoded.At(int(x*pngScale), int(y*pngScale))).(color.RGBA)
			for _, d := range []int{int(got.R) - int(want.R), int(got.G) - int(want.G), int(got.B) - int(want.B), int(got.A) - int(want.A)} {
				if d < -2 || d > 2 {
					t.Fatalf("scheme %v: %s at %v, %v is %v, want %v", scheme, what, x, y, got, want)
				}
			}
		}
		paper := c.rgba(ink("paper"))
		at("paper", 5, 5, paper)
		at("a rectangle", 20, 15, c.rgba(run))
		at("right of it", 32, 15, paper)
		at("another", 50, 15, c.rgba(state))
		at("a line", 50, 30.5, c.rgba(ink("ink")))
		at("an area", 80, 15, c.rgba(run))
		mixed := func(v, below uint8) uint8 { return uint8(math.Round(0.25*float64(v) + 0.75*float64(below))) }
		r := c.rgba(run)
		at("an area that lets through", 80, 47, color.RGBA{mixed(r.R, paper.R), mixed(r.G, paper.G), mixed(r.B, paper.B), 255})
		at("a stroke", 20, 45, c.rgba(state))
		at("its corner", 30, 40, c.rgba(state))
		at("a dash", 2, 58, c.rgba(run))
		at("a gap", 7, 58, paper)
	}
	for _, c := range allColours() {
		for _, text := range []string{c.Light, c.Dark} {
			if _, err := strconv.ParseUint(strings.TrimPrefix(text, "#"), 16, 32); err != nil || len(text) != 7 {
				t.Errorf("%s is drawn in %q", c.Name, text)
			}
		}
	}
}

// Texts are written where the SVG has them: they begin, are centred or end at their place.
func TestPNGWritesTexts(t *testing.T) {
	for anchor, want := range map[string][2]float64{"start": {50, 0}, "middle": {0, 0}, "end": {0, 50}} {
		p := Picture{Width: 100, Height: 30}
		p.label(50, 20, anchor, "Größe µ×–", 10, ink("ink"))
		drawn := p.draw(Light, pngScale)
		low, high, dark := 100.0, 0.0, 0
		for y := range drawn.Bounds().Dy() {
			for x := range drawn.Bounds().Dx() {
				if drawn.RGBAAt(x, y).R < 128 {
					low, high, dark = min(low, float64(x)/pngScale), max(high, float64(x)/pngScale), dark+1
				}
			}
		}
		if dark < 100 || high-low < 35 || high-low > 60 {
			t.Errorf("%s: %d dark pixels from %v to %v", anchor, dark, low, high)
		}
		if want[0] > 0 && math.Abs(low-want[0]) > 2 || want[1] > 0 && math.Abs(high-want[1]) > 2 || anchor == "middle" && math.Abs((low+high)/2-50) > 2 {
			t.Errorf("%s: from %v to %v", anchor, low, high)
		}
	}
}

// What reaches over the edges is cut off there.
func TestPNGEndsAtItsEdges(t *testing.T) {
	p := Picture{Width: 40, Height: 20}
	p.label(38, 19.5, "start", "over the edge", 12, ink("ink"))
	p.label(2, 2, "end", "before it", 12, ink("ink"))
	p.rect(-5, -5, 10, 10, ink("late"), "")
	p.line(-10, 10, 60, 10, ink("ink"))
	p.path([]float64{-20, 20, 70}, []float64{-9, 30, 4}, ink("faint"))
	p.area([]float64{30, 90, 30}, []float64{5, 12, 18}, ink("late"), 0.5)
	drawn := p.draw(Light, pngScale)
	late := (&canvas{}).rgba(ink("late"))
	if got := drawn.RGBAAt(2, 2); got != late {
		t.Errorf("the corner is %v", got)
	}
	if got := drawn.RGBAAt(79, 20); got == (color.RGBA{255, 255, 255, 255}) {
		t.Error("the line does not reach the edge")
	}
}
