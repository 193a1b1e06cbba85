package term

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Table aligns rows of cells in columns: the first to the left, the others to the right.
type Table struct {
	rows [][]string
	// Gap is the number of spaces between columns, 2 if zero.
	Gap int
	// Text is the number of the first column of words, which begin at the left; 0 is none.
	Text int
}

// Row adds a row; rows may have different lengths.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Write prints the table, without spaces at the ends of lines.
func (t *Table) Write(w io.Writer) error {
	widths := t.widths()
	gap := strings.Repeat(" ", max(t.Gap, 2))
	var b strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case i == 0:
				line.WriteString(cell + pad)
			case t.Text > 0 && i >= t.Text:
				line.WriteString(gap + cell + pad)
			default:
				line.WriteString(gap + pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}
