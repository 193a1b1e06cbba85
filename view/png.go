package view

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"strconv"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// Scheme is light or dark.
type Scheme bool

// The schemes.
const (
	Light Scheme = false
	Dark  Scheme = true
)

// pngScale is how many pixels of a PNG are one of the picture: enough for dense screens and
// for print.
const pngScale = 2

// PNG writes the picture as pixels, with the same shapes as its SVG.
func (p Picture) PNG(w io.Writer, s Scheme) error {
	return (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(w, p.draw(s, pngScale))
}

// draw rasterizes the picture.
func (p Picture) draw(s Scheme, scale float64) *image.RGBA {
	c := &canvas{RGBA: image.NewRGBA(image.Rect(0, 0, int(math.Ceil(p.Width*scale)), int(math.Ceil(p.Height*scale)))), scale: scale, scheme: s}
	c.box(0, 0, p.Width, p.Height, c.rgba(ink("paper")))
	for i := range p.shapes {
		c.shape(&p.shapes[i])
	}
	return c.RGBA
}

// canvas is a picture while its pixels are made.
type canvas struct {
	*image.RGBA
	scale  float64
	scheme Scheme
	raster vector.Rasterizer
}

// rgba is a colour in the scheme of the canvas.
func (c *canvas) rgba(of Colour) color.RGBA {
	text := of.Light
	if c.scheme == Dark {
		text = of.Dark
	}
	n, _ := strconv.ParseUint(text[1:], 16, 32) // the table has only such; a test reads it
	return color.RGBA{uint8(n >> 16), uint8(n >> 8), uint8(n), 255}
}

func (c *canvas) shape(s *shape) {
	colour := c.rgba(s.colour)
	switch s.kind {
	case shapeRect:
		c.box(s.x, s.y, s.w, s.h, colour)
	case shapeLine:
		c.stroke([]float64{s.x, s.w}, []float64{s.y, s.h}, 1, nil, colour)
	case shapePath:
		c.stroke(s.xs, s.ys, strokeWidth, s.dash, colour)
	case shapeArea:
		if s.opacity != 0 {
			colour = faded(colour, s.opacity)
		}
		c.fill([]outline{{s.xs, s.ys}}, colour)
	case shapeText:
		c.write(s, colour)
	}
}

// faded is a colour that lets through what is below it.
func faded(c color.RGBA, opacity float64) color.RGBA {
	f := func(v uint8) uint8 { return uint8(math.Round(float64(v) * opacity)) }
	return color.RGBA{f(c.R), f(c.G), f(c.B), f(c.A)}
}

// box fills a rectangle; pixels at its edges are covered in part.
func (c *canvas) box(x, y, w, h float64, colour color.RGBA) {
	x0, y0, x1, y1 := x*c.scale, y*c.scale, (x+w)*c.scale, (y+h)*c.scale
	b := c.Bounds()
	for py := max(int(math.Floor(y0)), 0); py < min(int(math.Ceil(y1)), b.Max.Y); py++ {
		down := min(y1, float64(py+1)) - max(y0, float64(py))
		for px := max(int(math.Floor(x0)), 0); px < min(int(math.Ceil(x1)), b.Max.X); px++ {
			c.cover(px, py, colour, down*(min(x1, float64(px+1))-max(x0, float64(px))))
		}
	}
}

// cover puts a colour over a share of a pixel.
func (c *canvas) cover(x, y int, colour color.RGBA, share float64) {
	at := c.PixOffset(x, y)
	pixel := c.Pix[at : at+4 : at+4]
	below := 1 - share*float64(colour.A)/255
	for i, v := range [4]uint8{colour.R, colour.G, colour.B, colour.A} {
		pixel[i] = uint8(math.Round(min(float64(v)*share+float64(pixel[i])*below, 255)))
	}
}

// outline is a closed line.
type outline struct{ xs, ys []float64 }

// fill fills what closed lines enclose, in coordinates of the picture. Lines around the same
// place in the same direction do not cancel each other.
func (c *canvas) fill(lines []outline, colour color.RGBA) {
	low, high := [2]float64{math.Inf(1), math.Inf(1)}, [2]float64{math.Inf(-1), math.Inf(-1)}
	for _, l := range lines {
		for i := range l.xs {
			low, high = [2]float64{min(low[0], l.xs[i]), min(low[1], l.ys[i])}, [2]float64{max(high[0], l.xs[i]), max(high[1], l.ys[i])}
		}
	}
	if !(low[0] <= high[0]) {
		return
	}
	area := image.Rect(int(math.Floor(low[0]*c.scale)), int(math.Floor(low[1]*c.scale)), int(math.Ceil(high[0]*c.scale))+1, int(math.Ceil(high[1]*c.scale))+1)
	c.raster.Reset(area.Dx(), area.Dy())
	point := func(l outline, i int) (x, y float32) {
		return float32(l.xs[i]*c.scale - float64(area.Min.X)), float32(l.ys[i]*c.scale - float64(area.Min.Y))
	}
	for _, l := range lines {
		c.raster.MoveTo(point(l, 0))
		for i := 1; i < len(l.xs); i++ {
			c.raster.LineTo(point(l, i))
		}
		c.raster.ClosePath()
	}
	c.paint(area, colour)
}

// paint puts a colour where the rasterizer is covered. What lies outside of the picture is cut
// off, which the rasterizer does not do by itself.
func (c *canvas) paint(area image.Rectangle, colour color.RGBA) {
	if area.In(c.Bounds()) {
		c.raster.Draw(c.RGBA, area, image.NewUniform(colour), image.Point{})
		return
	}
	const most = 1 << 14 // pixels; nobody draws so far outside
	if area.Dx() > most || area.Dy() > most {
		return
	}
	mask := image.NewAlpha(image.Rect(0, 0, area.Dx(), area.Dy()))
	c.raster.Draw(mask, mask.Bounds(), image.Opaque, image.Point{})
	draw.DrawMask(c.RGBA, area, image.NewUniform(colour), image.Point{}, mask, image.Point{}, draw.Over)
}

// stroke draws along points.
func (c *canvas) stroke(xs, ys []float64, width float64, dash []float64, colour color.RGBA) {
	var parts []outline
	for _, run := range dashes(xs, ys, dash) {
		for i := range run.xs {
			if i > 0 {
				parts = append(parts, segment(run.xs[i-1], run.ys[i-1], run.xs[i], run.ys[i], width/2))
			}
			if i > 0 && i < len(run.xs)-1 {
				parts = append(parts, disk(run.xs[i], run.ys[i], width/2))
			}
		}
	}
	c.fill(parts, colour)
}

// segment is the outline of a straight stroke, always in the same direction.
func segment(x0, y0, x1, y1, half float64) outline {
	dx, dy := x1-x0, y1-y0
	length := math.Hypot(dx, dy)
	if length == 0 {
		return disk(x0, y0, half)
	}
	nx, ny := -dy/length*half, dx/length*half
	return outline{[]float64{x0 + nx, x1 + nx, x1 - nx, x0 - nx}, []float64{y0 + ny, y1 + ny, y1 - ny, y0 - ny}}
}

// disk is the outline of a round joint, in the direction of segments.
func disk(x, y, radius float64) (o outline) {
	const corners = 8
	for i := range corners {
		sin, cos := math.Sincos(-2 * math.Pi * float64(i) / corners)
		o.xs, o.ys = append(o.xs, x+radius*cos), append(o.ys, y+radius*sin)
	}
	return o
}

// dashes cuts a line into strokes. Without a pattern it is one.
func dashes(xs, ys, pattern []float64) []outline {
	if len(pattern) == 0 {
		return []outline{{xs, ys}}
	}
	var list []outline
	now, left, at := outline{[]float64{xs[0]}, []float64{ys[0]}}, pattern[0], 0
	for i := 1; i < len(xs); i++ {
		x, y := xs[i-1], ys[i-1]
		for {
			rest := math.Hypot(xs[i]-x, ys[i]-y)
			if rest <= left {
				left -= rest
				now.xs, now.ys = append(now.xs, xs[i]), append(now.ys, ys[i])
				break
			}
			x, y = x+(xs[i]-x)*left/rest, y+(ys[i]-y)*left/rest
			if at%2 == 0 {
				now.xs, now.ys = append(now.xs, x), append(now.ys, y)
				list = append(list, now)
			}
			now = outline{[]float64{x}, []float64{y}}
			at++
			left = pattern[at%len(pattern)]
		}
	}
	if at%2 == 0 && len(now.xs) > 1 {
		list = append(list, now)
	}
	return list
}

// typeface is the font of PNGs. Pictures name the fonts of the screen in their SVGs, which a
// program without a screen does not have.
var typeface = sync.OnceValues(func() (*sfnt.Font, error) { return sfnt.Parse(goregular.TTF) })

// write draws a text.
func (c *canvas) write(s *shape, colour color.RGBA) {
	face, err := typeface()
	if err != nil {
		return // the font is embedded, and a test reads it
	}
	var b sfnt.Buffer
	em := fixed.Int26_6(math.Round(s.size * c.scale * 64))
	advance := func(g sfnt.GlyphIndex) float64 {
		a, err := face.GlyphAdvance(&b, g, em, font.HintingNone)
		if err != nil {
			return 0
		}
		return float64(a) / 64
	}
	var glyphs []sfnt.GlyphIndex
	width := 0.0
	for _, r := range s.text {
		g, err := face.GlyphIndex(&b, r)
		if err != nil {
			continue // drawn as nothing, as are runes that the font lacks
		}
		glyphs, width = append(glyphs, g), width+advance(g)
	}
	x, y := s.x*c.scale, s.y*c.scale
	switch s.anchor {
	case "middle":
		x -= width / 2
	case "end":
		x -= width
	}
	size := s.size * c.scale
	area := image.Rect(int(x)-2, int(y-1.2*size)-1, int(x+width)+3, int(y+0.5*size)+2)
	c.raster.Reset(area.Dx(), area.Dy())
	for _, g := range glyphs {
		c.glyph(face, &b, g, em, x-float64(area.Min.X), y-float64(area.Min.Y))
		x += advance(g)
	}
	c.paint(area, colour)
}

// glyph adds the outline of a glyph to the rasterizer.
func (c *canvas) glyph(face *sfnt.Font, b *sfnt.Buffer, g sfnt.GlyphIndex, em fixed.Int26_6, x, y float64) {
	segments, err := face.LoadGlyph(b, g, em, nil)
	if err != nil {
		return
	}
	at := func(p fixed.Point26_6) (float32, float32) {
		return float32(x + float64(p.X)/64), float32(y + float64(p.Y)/64)
	}
	for i, s := range segments {
		x0, y0 := at(s.Args[0])
		x1, y1 := at(s.Args[1])
		x2, y2 := at(s.Args[2])
		switch s.Op {
		case sfnt.SegmentOpMoveTo:
			if i > 0 {
				c.raster.ClosePath()
			}
			c.raster.MoveTo(x0, y0)
		case sfnt.SegmentOpLineTo:
			c.raster.LineTo(x0, y0)
		case sfnt.SegmentOpQuadTo:
			c.raster.QuadTo(x0, y0, x1, y1)
		case sfnt.SegmentOpCubeTo:
			c.raster.CubeTo(x0, y0, x1, y1, x2, y2)
		}
	}
	c.raster.ClosePath()
}

// Drawn is a view that can be drawn.
type Drawn interface {
	Picture() Picture
}

// WritePicture writes a view as a picture, in the form that a file's name ends with.
func WritePicture(w io.Writer, ending string, v Drawn, s Scheme) error {
	switch ending {
	case ".svg":
		_, err := io.WriteString(w, v.Picture().SVG())
		return err
	case ".png":
		return v.Picture().PNG(w, s)
	}
	return fmt.Errorf("a picture is not written as %q: name a file that ends with .svg or .png", ending)
}
