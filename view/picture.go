package view

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Picture is a view as shapes: what its SVG and its PNG have in common. Equal views give equal
// pictures, and those equal bytes.
type Picture struct {
	Title    string // what a screen reader says
	Describe string // what is to be seen, in words
	Width    float64
	Height   float64 // both in pixels of a screen of usual density
	shapes   []shape
}

// shape is one thing that is drawn. Coordinates are pixels, y counts downwards.
type shape struct {
	kind       shapeKind
	colour     Colour
	x, y, w, h float64   // of a rect; x, y to w, h of a line; x, y of a text's baseline
	xs, ys     []float64 // of paths
	text       string    // of a text; of a rect what it says when it is pointed at
	anchor     string    // of a text: start, middle or end
	size       float64   // of a text
	dash       []float64 // of a path: lengths of strokes and gaps
	opacity    float64   // of an area; 0 is opaque
}

type shapeKind uint8

const (
	shapeRect shapeKind = iota
	shapeLine
	shapePath // a stroke along points
	shapeArea // what points enclose
	shapeText
)

// strokeWidth is that of paths; lines are one pixel wide.
const strokeWidth = 1.5

func (p *Picture) rect(x, y, w, h float64, c Colour, title string) {
	p.shapes = append(p.shapes, shape{kind: shapeRect, x: x, y: y, w: w, h: h, colour: c, text: title})
}

func (p *Picture) line(x1, y1, x2, y2 float64, c Colour) {
	p.shapes = append(p.shapes, shape{kind: shapeLine, x: x1, y: y1, w: x2, h: y2, colour: c})
}

// path draws a stroke along points.
func (p *Picture) path(xs, ys []float64, c Colour, dash ...float64) {
	if len(xs) > 0 {
		p.shapes = append(p.shapes, shape{kind: shapePath, xs: xs, ys: ys, colour: c, dash: dash})
	}
}

// area fills what points enclose. An opacity of 0 is opaque.
func (p *Picture) area(xs, ys []float64, c Colour, opacity float64) {
	if len(xs) > 0 {
		p.shapes = append(p.shapes, shape{kind: shapeArea, xs: xs, ys: ys, colour: c, opacity: opacity})
	}
}

// label writes at a baseline; anchor is start, middle or end.
func (p *Picture) label(x, y float64, anchor, text string, size float64, c Colour) {
	p.shapes = append(p.shapes, shape{kind: shapeText, x: x, y: y, anchor: anchor, text: text, size: size, colour: c})
}

// textWidth is about how wide a text is, at a size in pixels.
func textWidth(text string, size float64) float64 {
	return 0.56 * size * float64(utf8.RuneCountInString(text))
}

// legend writes names with their colours from x on, in lines of a width, and gives the height
// it took.
func (p *Picture) legend(x, y, width float64, names []string, colours []Colour) float64 {
	const size, box, rowHeight = labelSize, 11, 20
	at, row := x, 0.0
	for i, name := range names {
		need := box + 6 + textWidth(name, size) + 16
		if at+need > x+width && at > x {
			at, row = x, row+1
		}
		p.rect(at, y+row*rowHeight, box, box, colours[i], "")
		p.label(at+box+5, y+row*rowHeight+box-0.5, "start", name, size, ink("ink"))
		at += need
	}
	return (row + 1) * rowHeight
}

// escape writes text for XML.
func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil { // a Builder takes everything
		return ""
	}
	return b.String()
}

// num writes a coordinate with at most two digits after the point.
func num(f float64) string {
	s := strconv.FormatFloat(f, 'f', 2, 64)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}

// SVG writes the picture as text. Colours are attributes, with classes that a page's style
// sheet overrides; there is no style in it, so that a strict content security policy lets it
// through.
func (p Picture) SVG() string {
	var b strings.Builder
	paper := ink("paper")
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img" font-family="Helvetica Neue,Helvetica,Arial,DejaVu Sans,sans-serif">`+
		"\n<title>%s</title>\n<desc>%s</desc>\n"+`<rect width="100%%" height="100%%" class="f-%s" fill="%s"/>`+"\n",
		num(p.Width), num(p.Height), num(p.Width), num(p.Height), escape(p.Title), escape(p.Describe), paper.Name, paper.Light)
	for i := range p.shapes {
		p.shapes[i].svg(&b)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (s *shape) svg(b *strings.Builder) {
	c := s.colour
	switch s.kind {
	case shapeRect:
		fmt.Fprintf(b, `<rect x="%s" y="%s" width="%s" height="%s" class="f-%s" fill="%s"`, num(s.x), num(s.y), num(s.w), num(s.h), c.Name, c.Light)
		if s.text == "" {
			b.WriteString("/>\n")
			return
		}
		fmt.Fprintf(b, "><title>%s</title></rect>\n", escape(s.text))
	case shapeLine:
		fmt.Fprintf(b, `<line x1="%s" y1="%s" x2="%s" y2="%s" class="s-%s" stroke="%s"/>`+"\n", num(s.x), num(s.y), num(s.w), num(s.h), c.Name, c.Light)
	case shapePath:
		b.WriteString(`<path d="` + s.points())
		dash := ""
		if len(s.dash) > 0 {
			dash = ` stroke-dasharray="` + strings.Trim(fmt.Sprint(s.dash), "[]") + `"`
		}
		fmt.Fprintf(b, `" class="s-%s" fill="none" stroke="%s" stroke-width="%v" stroke-linejoin="round"%s/>`+"\n", c.Name, c.Light, strokeWidth, dash)
	case shapeArea:
		open, end := "", "\n"
		if s.opacity != 0 {
			open, end = fmt.Sprintf(`<g opacity="%v">`, s.opacity), "\n</g>\n"
		}
		fmt.Fprintf(b, `%s<path d="%sZ" class="f-%s" fill="%s"/>%s`, open, s.points(), c.Name, c.Light, end)
	case shapeText:
		fmt.Fprintf(b, `<text x="%s" y="%s" text-anchor="%s" font-size="%s" class="f-%s" fill="%s">%s</text>`+"\n", num(s.x), num(s.y), s.anchor, num(s.size), c.Name, c.Light, escape(s.text))
	}
}

// points are those of a path, as SVG has them.
func (s *shape) points() string {
	var b strings.Builder
	for i := range s.xs {
		command := byte('L')
		if i == 0 {
			command = 'M'
		}
		b.WriteByte(command)
		b.WriteString(num(s.xs[i]) + " " + num(s.ys[i]))
	}
	return b.String()
}
