package view

import (
	"fmt"
	"html"
	"strings"

	"spillway/plan"
)

// reportStyle is that of a report, after the colors of CSS.
const reportStyle = `body{margin:0 auto;max-width:60rem;padding:1.5rem;background:var(--c-paper);color:var(--c-ink);font:15px/1.5 "Helvetica Neue",Helvetica,Arial,"DejaVu Sans",sans-serif}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.5rem 0}
th,td{padding:.2rem .7rem;border-bottom:1px solid var(--c-grid);text-align:right}th:first-child,td:first-child,td.text{text-align:left}
figure{margin:1rem 0;overflow-x:auto}svg{max-width:100%;height:auto}
summary{color:var(--c-faint);cursor:pointer}.faint{color:var(--c-faint)}.serious{color:var(--c-late)}
`

// page is the report as HTML. It is written by hand: a template would look up methods by their
// names, and then linkers keep every method of the program, 2.5 MiB of them.
func (d *reportData) page() string {
	var p htmlPage
	p.write("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n")
	p.element("title", "", d.Title+" - spillway")
	p.write("\n<style>\n" + CSS() + "\n" + reportStyle + "</style>\n</head>\n<body>\n<main>\n")
	p.element("h1", "", d.Title)
	p.element("p", "faint", "made by spillway report, "+d.Made)
	for _, text := range d.Damaged {
		p.element("p", "serious", text)
	}
	p.compared(d.Compare)
	if len(d.Alerts) > 0 {
		p.element("h2", "", "alerts")
		p.table([]string{"step", "alert"}, func() {
			for _, a := range d.Alerts {
				p.row(htmlCell{fmt.Sprint(a.Step), ""}, htmlCell{a.Text, "text " + string(a.Level)})
			}
		})
	}
	if d.Strategy != "" {
		p.element("h2", "", "plan")
		p.element("p", "", d.Strategy+": "+d.Reason)
	}
	p.plots(d.Plots)
	if len(d.Slips) > 0 {
		p.element("h2", "", "instructions that took longest beyond their forecast")
		p.table([]string{"lane", "instruction", "forecast", "measured"}, func() {
			for _, s := range d.Slips {
				p.row(htmlCell{s.Lane, ""}, htmlCell{fmt.Sprint(s.Verb, " ", s.Name), "text"}, htmlCell{Duration(s.Forecast), ""}, htmlCell{Duration(s.Measured), ""})
			}
		})
	}
	p.otherPlans(d.Others)
	if len(d.Settings) > 0 {
		p.element("h2", "", "settings")
		p.table([]string{"setting", "value"}, func() {
			for _, s := range d.Settings {
				p.row(htmlCell{s.Name, ""}, htmlCell{fmt.Sprint(s.Value), "text"})
			}
		})
	}
	p.write("</main>\n</body>\n</html>\n")
	return p.String()
}

// htmlPage is a page being written. Texts are escaped but for those of write.
type htmlPage struct{ strings.Builder }

func (p *htmlPage) write(markup string) { p.WriteString(markup) }

// element writes an element with a text, and with classes if there are any.
func (p *htmlPage) element(name, classes, text string) {
	if p.write("<" + name); classes != "" {
		p.write(" class=\"" + html.EscapeString(classes) + "\"")
	}
	p.write(">" + html.EscapeString(text) + "</" + name + ">")
}

// table writes a table with rows that a function writes.
func (p *htmlPage) table(columns []string, rows func()) {
	p.write("<table><thead><tr>")
	for _, c := range columns {
		p.write("<th scope=\"col\">" + html.EscapeString(c) + "</th>")
	}
	p.write("</tr></thead>\n<tbody>")
	rows()
	p.write("</tbody></table>\n")
}

// htmlCell of a row of a table: a text, and its classes.
type htmlCell struct{ text, classes string }

func (p *htmlPage) row(cells ...htmlCell) {
	p.write("<tr>")
	for _, c := range cells {
		p.element("td", c.classes, c.text)
	}
	p.write("</tr>")
}

// compared are the figures, settings, plans and machines of runs, side by side.
func (p *htmlPage) compared(c Comparison) {
	for _, t := range c.Tables() {
		p.element("h2", "", t.Title)
		p.table(append([]string{"what"}, c.Runs...), func() {
			for _, r := range t.Rows {
				p.write("<tr><th scope=\"row\">" + html.EscapeString(r.Name) + "</th>")
				for _, v := range r.Values {
					p.element("td", "", v)
				}
				p.write("</tr>")
			}
		})
	}
}

// plots are pictures, each with its numbers below.
func (p *htmlPage) plots(list []Plot) {
	for _, plot := range list {
		p.write("<figure>" + plot.Picture + "<details><summary>numbers</summary>\n")
		p.table(plot.Columns, func() {
			for _, values := range plot.Rows {
				var cells []htmlCell
				for _, v := range values {
					cells = append(cells, htmlCell{v, ""})
				}
				p.row(cells...)
			}
		})
		p.write("</details></figure>\n")
	}
}

// otherPlans are those that the planner did not take.
func (p *htmlPage) otherPlans(list []plan.Alternative) {
	if len(list) == 0 {
		return
	}
	p.element("h2", "", "other plans")
	p.table([]string{"plan", "time per step", "why not"}, func() {
		for _, o := range list {
			took := ""
			if o.StepSeconds != 0 {
				if took = Duration(o.StepSeconds); o.LowerBound {
					took = "at least " + took
				}
			}
			p.row(htmlCell{o.Strategy, ""}, htmlCell{took, ""}, htmlCell{o.Reason, "text"})
		}
	})
}
