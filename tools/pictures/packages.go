package main

import (
	"cmp"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// group is what packages have in common, with their color.
type group struct {
	name, fill, stroke string
	packages           []string // paths; "device" covers device/cpu too
}

// groups are the layers of docs/architecture, in the order of its pages.
var groups = []group{
	{"runs and applications", "#fde2e1", "#c53030", []string{"spillway", "cmd", "run", "rig", "train", "generate", "finetune", "eventlog", "monitor", "view", "dashboard", "bench", "recipe", "deepspeed", "chat", "data", "tokenizer", "checkpoint"}},
	{"plan and planner", "#e3ddfb", "#6b46c1", []string{"plan", "planner", "placement"}},
	{"executor and devices", "#d7e9fb", "#2b6cb0", []string{"executor", "device", "store", "machine", "trace", "internal"}},
	{"models", "#d9f2e0", "#2f855a", []string{"arch", "nn", "lora", "spec"}},
	{"ops and kernels", "#fdebc8", "#b7791f", []string{"op", "graph", "autograd", "optim", "dtype", "shape", "units", "quant"}},
	{"files", "#e2e8f0", "#4a5568", []string{"hf", "safetensors", "tensorfile", "weights", "convert", "inspect"}},
}

func groupOf(pkg string) group {
	for _, g := range groups {
		for _, p := range g.packages {
			if pkg == p || strings.HasPrefix(pkg, p+"/") {
				return g
			}
		}
	}
	return group{name: "other", fill: "#fff", stroke: "#718096"}
}

const module = "spillway"

// packageImports are the packages that the program and the library are made of, with
// those of ours each imports, tests left out.
func packageImports(root string) (map[string][]string, error) {
	cmd := exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, ".", "./cmd/spillway")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all := map[string][]string{}
	ours := func(path string) (string, bool) {
		if path == module {
			return module, true
		}
		return strings.CutPrefix(path, module+"/")
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		pkg, ok := ours(words[0])
		if !ok {
			continue
		}
		all[pkg] = nil
		for _, w := range words[1:] {
			if p, ok := ours(w); ok {
				all[pkg] = append(all[pkg], p)
			}
		}
	}
	return all, nil
}

// reduced leaves out imports of what another import depends on anyway.
func reduced(imports map[string][]string) map[string][]string {
	reach := map[string]map[string]bool{} // all packages that each one depends on
	var visit func(p string) map[string]bool
	visit = func(p string) map[string]bool {
		if reach[p] == nil {
			reach[p] = map[string]bool{}
			for _, q := range imports[p] {
				reach[p][q] = true
				maps.Copy(reach[p], visit(q))
			}
		}
		return reach[p]
	}
	out := map[string][]string{}
	for p, list := range imports {
		out[p] = slices.DeleteFunc(slices.Clone(list), func(q string) bool {
			return slices.ContainsFunc(list, func(other string) bool { return visit(other)[q] })
		})
	}
	return out
}

// node is a package in its row, or a place where an arrow passes a row.
type node struct {
	name  string // "" where an arrow passes
	row   int
	x     float64 // of its middle
	width float64
	down  []*node
	up    []*node
}

// layers puts packages into rows: each stands right below the lowest that imports it, so
// above all that it imports.
func layers(edges map[string][]string) [][]*node {
	row := map[string]int{}
	var sink func(p string, to int)
	sink = func(p string, to int) {
		if at, ok := row[p]; ok && at >= to {
			return
		}
		row[p] = to
		for _, q := range edges[p] {
			sink(q, to+1)
		}
	}
	names := slices.Sorted(maps.Keys(edges))
	lowest := 0
	for _, p := range names {
		sink(p, 0)
	}
	for _, r := range row {
		lowest = max(lowest, r)
	}
	rows := make([][]*node, lowest+1)
	nodes := map[string]*node{}
	for _, p := range names {
		n := &node{name: p, row: row[p], width: 20 + 7.2*float64(len(p))}
		nodes[p], rows[n.row] = n, append(rows[n.row], n)
	}
	for _, p := range names {
		for _, q := range edges[p] {
			from := nodes[p]
			for row := from.row + 1; row < nodes[q].row; row++ {
				pass := &node{row: row, width: 8}
				rows[row] = append(rows[row], pass)
				join(from, pass)
				from = pass
			}
			join(from, nodes[q])
		}
	}
	return rows
}

func join(a, b *node) {
	a.down = append(a.down, b)
	b.up = append(b.up, a)
}

// arrange orders every row by where its neighbours stand, so that few arrows cross, and
// moves packages towards them.
func arrange(rows [][]*node, width float64) {
	for _, row := range rows {
		for i, n := range row {
			n.x = width * (float64(i) + 0.5) / float64(len(row))
		}
	}
	for round := range 60 {
		for i := range rows {
			row, toward := rows[i], func(n *node) []*node { return n.up }
			if round%2 == 1 {
				row, toward = rows[len(rows)-1-i], func(n *node) []*node { return n.down }
			}
			for _, n := range row {
				if near := toward(n); len(near) > 0 {
					sum := 0.0
					for _, m := range near {
						sum += m.x
					}
					n.x = sum / float64(len(near))
				}
			}
			spread(row, width)
		}
	}
}

// spread moves nodes of a row apart until none covers another and all are inside.
func spread(row []*node, width float64) {
	const gap = 14
	slices.SortStableFunc(row, func(a, b *node) int { return cmp.Compare(a.x, b.x) })
	for i, n := range row {
		low := n.width/2 + gap
		if i > 0 {
			low = row[i-1].x + row[i-1].width/2 + gap + n.width/2
		}
		n.x = max(n.x, low)
	}
	for i := len(row) - 1; i >= 0; i-- {
		high := width - row[i].width/2 - gap
		if i < len(row)-1 {
			high = row[i+1].x - row[i+1].width/2 - gap - row[i].width/2
		}
		row[i].x = min(row[i].x, high)
	}
}

func drawPackages(root string) (string, error) {
	imports, err := packageImports(root)
	if err != nil {
		return "", err
	}
	rows := layers(reduced(imports))
	const width, top, step, tall = 1240.0, 92.0, 66.0, 30.0
	arrange(rows, width)
	var s svg
	s.text(20, 34, "start", "title", "The packages: each stands above all that it imports")
	x := 20.0
	for _, g := range groups {
		s.rect(x, 50, 14, 14, 3, g.fill, g.stroke, "")
		s.text(x+20, 62, "start", "small", g.name)
		x += 44 + 6.4*float64(len(g.name))
	}
	at := func(n *node) float64 { return top + step*float64(n.row) }
	for _, row := range rows {
		for _, n := range row {
			if n.name == "" {
				continue
			}
			for _, m := range n.down {
				s.edge(n, m, at, tall, groupOf(n.name).stroke)
			}
		}
	}
	for _, row := range rows {
		for _, n := range row {
			if n.name != "" {
				g := groupOf(n.name)
				s.rect(n.x-n.width/2, at(n), n.width, tall, 6, g.fill, g.stroke, n.name+" imports "+strings.Join(imports[n.name], ", "))
				s.text(n.x, at(n)+20, "middle", "", n.name)
			}
		}
	}
	s.text(20, top+step*float64(len(rows))-8, "start", "small", "An import is left out where another one leads there too. Drawn by tools/pictures from go list.")
	return s.picture(width, top+step*float64(len(rows))+8, "The packages of Spillway and who imports whom"), nil
}

// edge draws an import, through the rows it passes, as one smooth line.
func (s *svg) edge(from, to *node, at func(*node) float64, tall float64, color string) {
	fmt.Fprintf(s, `<path class="edge" stroke="%s" d="M%.1f %.1f`, color, from.x, at(from)+tall)
	for {
		y0, y1 := at(from)+tall, at(to)
		if from.name == "" {
			y0 = at(from) + tall/2
		}
		if to.name == "" {
			y1 = at(to) + tall/2
		}
		mid := (y0 + y1) / 2
		fmt.Fprintf(s, " C%.1f %.1f %.1f %.1f %.1f %.1f", from.x, mid, to.x, mid, to.x, y1)
		if to.name != "" {
			break
		}
		from, to = to, to.down[0]
	}
	s.WriteString("\"/>\n")
}
