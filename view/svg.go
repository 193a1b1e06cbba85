package view

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// drawing is an SVG picture while it is written. Colours are attributes, with classes that a
// page's style sheet overrides; there is no style in it, so that a strict content security
// policy lets it through. Equal calls give equal bytes.
type drawing struct {
	strings.Builder
	width, height float64
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

func (d *drawing) rect(x, y, w, h float64, c Colour, title string) {
	fmt.Fprintf(d, `<rect x="%s" y="%s" width="%s" height="%s" class="f-%s" fill="%s"`, num(x), num(y), num(w), num(h), c.Name, c.Light)
	if title == "" {
		d.WriteString("/>\n")
		return
	}
	fmt.Fprintf(d, "><title>%s</title></rect>\n", escape(title))
}

func (d *drawing) line(x1, y1, x2, y2 float64, c Colour) {
	fmt.Fprintf(d, `<line x1="%s" y1="%s" x2="%s" y2="%s" class="s-%s" stroke="%s"/>`+"\n", num(x1), num(y1), num(x2), num(y2), c.Name, c.Light)
}

// path draws points; closed ones are filled.
func (d *drawing) path(xs, ys []float64, c Colour, closed bool, dash string) {
	if len(xs) == 0 {
		return
	}
	d.WriteString(`<path d="`)
	for i := range xs {
		command := byte('L')
		if i == 0 {
			command = 'M'
		}
		d.WriteByte(command)
		d.WriteString(num(xs[i]) + " " + num(ys[i]))
	}
	if closed {
		fmt.Fprintf(d, `Z" class="f-%s" fill="%s"/>`+"\n", c.Name, c.Light)
		return
	}
	if dash != "" {
		dash = ` stroke-dasharray="` + dash + `"`
	}
	fmt.Fprintf(d, `" class="s-%s" fill="none" stroke="%s" stroke-width="1.5" stroke-linejoin="round"%s/>`+"\n", c.Name, c.Light, dash)
}

// text writes at a baseline; anchor is start, middle or end.
func (d *drawing) text(x, y float64, anchor, text string, size float64, c Colour) {
	fmt.Fprintf(d, `<text x="%s" y="%s" text-anchor="%s" font-size="%s" class="f-%s" fill="%s">%s</text>`+"\n", num(x), num(y), anchor, num(size), c.Name, c.Light, escape(text))
}

// done is the whole picture. The title is what a screen reader says.
func (d *drawing) done(title, describe string) string {
	paper := ink("paper")
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img" font-family="Helvetica Neue,Helvetica,Arial,DejaVu Sans,sans-serif">`+
		"\n<title>%s</title>\n<desc>%s</desc>\n"+`<rect width="100%%" height="100%%" class="f-%s" fill="%s"/>`+"\n%s</svg>\n",
		num(d.width), num(d.height), num(d.width), num(d.height), escape(title), escape(describe), paper.Name, paper.Light, d.String())
}

// textWidth is about how wide a text is, at a size in pixels.
func textWidth(text string, size float64) float64 {
	return 0.56 * size * float64(utf8.RuneCountInString(text))
}

// legend writes names with their colours from x on, in lines of a width, and gives the height
// it took.
func (d *drawing) legend(x, y, width float64, names []string, colours []Colour) float64 {
	const size, box, rowHeight = 12, 10, 18
	at, row := x, 0.0
	for i, name := range names {
		need := box + 6 + textWidth(name, size) + 16
		if at+need > x+width && at > x {
			at, row = x, row+1
		}
		d.rect(at, y+row*rowHeight, box, box, colours[i], "")
		d.text(at+box+5, y+row*rowHeight+box-0.5, "start", name, size, ink("ink"))
		at += need
	}
	return (row + 1) * rowHeight
}
