package view

import (
	"fmt"
	"math"
	"testing"
)

// lab is a colour in CIELAB, in which distances are about as large as they look.
func lab(r, g, b float64) [3]float64 {
	x := (0.4124*r + 0.3576*g + 0.1805*b) / 0.9505
	y := 0.2126*r + 0.7152*g + 0.0722*b
	z := (0.0193*r + 0.1192*g + 0.9505*b) / 1.089
	f := func(t float64) float64 {
		if t > 0.008856 {
			return math.Cbrt(t)
		}
		return 7.787*t + 16.0/116
	}
	return [3]float64{116*f(y) - 16, 500 * (f(x) - f(y)), 200 * (f(y) - f(z))}
}

// linear reads "#rrggbb" as linear light.
func linear(t *testing.T, colour string) (rgb [3]float64) {
	t.Helper()
	var c [3]int
	if _, err := fmt.Sscanf(colour, "#%02x%02x%02x", &c[0], &c[1], &c[2]); err != nil {
		t.Fatalf("%s: %v", colour, err)
	}
	for i, v := range c {
		s := float64(v) / 255
		if rgb[i] = s / 12.92; s > 0.04045 {
			rgb[i] = math.Pow((s+0.055)/1.055, 2.4)
		}
	}
	return rgb
}

// deficiencies are the matrices of Machado, Oliveira and Fernandes (2009) for full protanopia,
// deuteranopia and tritanopia, on linear light.
var deficiencies = map[string][9]float64{
	"none":         {1, 0, 0, 0, 1, 0, 0, 0, 1},
	"protanopia":   {0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998},
	"deuteranopia": {0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.011820, 0.042940, 0.968881},
	"tritanopia":   {1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.303900},
}

func seen(t *testing.T, colour string, m [9]float64) [3]float64 {
	c := linear(t, colour)
	var out [3]float64
	for i := range out {
		out[i] = min(max(m[3*i]*c[0]+m[3*i+1]*c[1]+m[3*i+2]*c[2], 0), 1)
	}
	return lab(out[0], out[1], out[2])
}

// Colours that stand next to each other can be told apart, whoever looks: verbs of a
// timeline, classes that are stacked upon each other, and the first runs of a chart.
func TestColoursCanBeToldApart(t *testing.T) {
	pairs := [][2]Colour{}
	all := func(list []Colour) {
		for i := range list {
			for j := range i {
				pairs = append(pairs, [2]Colour{list[i], list[j]})
			}
		}
	}
	all([]Colour{verbColours[0], verbColours[1], verbColours[2], verbColours[3]})
	all(lineColours[:4])
	for i := 1; i < len(classColours); i++ {
		pairs = append(pairs, [2]Colour{classColours[i-1].Colour, classColours[i].Colour})
	}
	const apart = 11 // a just noticeable difference is 2.3
	for name, m := range deficiencies {
		for _, p := range pairs {
			for scheme, c := range map[string][2]string{"light": {p[0].Light, p[1].Light}, "dark": {p[0].Dark, p[1].Dark}} {
				a, b := seen(t, c[0], m), seen(t, c[1], m)
				if d := math.Hypot(math.Hypot(a[0]-b[0], a[1]-b[1]), a[2]-b[2]); d < apart {
					t.Errorf("%s, %s: %s and %s are %.1f apart", name, scheme, p[0].Name, p[1].Name, d)
				}
			}
		}
	}
}

// Texts can be read: the contrast with the page is that of WCAG AA.
func TestContrast(t *testing.T) {
	luminance := func(c string) float64 {
		l := linear(t, c)
		return 0.2126*l[0] + 0.7152*l[1] + 0.0722*l[2]
	}
	paper := ink("paper")
	for _, name := range []string{"ink", "faint", "late"} {
		c := ink(name)
		for _, pair := range [][2]string{{c.Light, paper.Light}, {c.Dark, paper.Dark}} {
			a, b := luminance(pair[0]), luminance(pair[1])
			if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
				t.Errorf("%s on the page: %.1f", name, ratio)
			}
		}
	}
}
