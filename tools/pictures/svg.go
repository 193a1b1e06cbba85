package main

import (
	"fmt"
	"html"
	"strings"
)

// svg is a picture that grows by its shapes. Lengths are in pixels.
type svg struct {
	strings.Builder
}

const style = `text{font-family:"Helvetica Neue",Helvetica,Arial,"DejaVu Sans",sans-serif;font-size:13px;fill:#1f2933}
.small{font-size:11px;fill:#52606d}.title{font-size:17px;font-weight:600}.on{fill:#fff}
.edge{fill:none;stroke-width:1.2;stroke-opacity:.55}`

func (s *svg) rect(x, y, w, h, round float64, fill, stroke, title string) {
	fmt.Fprintf(s, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%.1f" fill="%s"`, x, y, w, h, round, fill)
	if stroke != "" {
		fmt.Fprintf(s, ` stroke="%s"`, stroke)
	}
	if title == "" {
		s.WriteString("/>\n")
		return
	}
	fmt.Fprintf(s, "><title>%s</title></rect>\n", html.EscapeString(title))
}

// text is anchored at its "start", "middle" or "end".
func (s *svg) text(x, y float64, anchor, class, text string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`+"\n", x, y, anchor, class, html.EscapeString(text))
}

func (s *svg) line(x1, y1, x2, y2 float64, stroke string) {
	fmt.Fprintf(s, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, stroke)
}

// picture is the whole file.
func (s *svg) picture(width, height float64, title string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`+"\n"+
		"<title>%s</title>\n<style>%s</style>\n"+`<rect width="100%%" height="100%%" fill="#fff"/>`+"\n%s</svg>\n",
		width, height, width, height, html.EscapeString(title), style, s.String())
}
