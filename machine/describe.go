package machine

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// String writes the machine in the language of Parse. What is published or
// assumed is left out, because Parse fills it again the same way: reading the
// string of a described machine gives that machine. Of a probed one it keeps the
// measured figures, but not the path of its disk, the name of its CPU and its notes.
func (m Machine) String() string {
	var items []string
	for i := 0; i < len(m.Devices); {
		n := 1
		for i+n < len(m.Devices) && alike(m.Devices[i], m.Devices[i+n]) {
			n++
		}
		item := m.Devices[i].String()
		if n > 1 {
			item = strconv.Itoa(n) + "x" + item
		}
		items = append(items, item)
		i += n
	}
	if host := write("host", "memory", "", figures{m.Host.figures(), &m.Host.Sources}); host != "host" {
		items = append(items, host)
	}
	if m.HasDisk() {
		items = append(items, write("disk", "free", "read", figures{m.Disk.figures(), &m.Disk.Sources}))
	}
	return strings.Join(append(items, m.peerItems()...), ",")
}

// String is the device as a part of a machine's description.
func (d Device) String() string {
	kind, flops := string(d.Kind), "bf16"
	if _, known := findModel(d.Model); known {
		kind = d.Model
	}
	if d.Kind == CPU {
		flops = "f32"
	}
	var flags []string
	if d.Shared {
		flags = append(flags, "shared")
	}
	return write(kind, "memory", flops, figures{d.figures(), &d.Sources}, flags...)
}

// write gives "kind:size@figure/figure/flag". The figure with the key bare goes without
// its name, as do equal rates of both directions of a link.
func write(kind, sizeKey, bare string, f figures, flags ...string) string {
	out, rest := kind, []string(nil)
	skip := ""
	for _, g := range f.all {
		s := (*f.sources)[g.key]
		switch {
		case s != Given && s != Measured || g.key == skip:
		case g.key == sizeKey:
			out += ":" + g.field.exact()
		case g.key == bare:
			rest = append(rest, g.field.exact())
		case g.key == "in" && (*f.sources)["out"] == s && g.field.exact() == f.find("out").exact():
			rest, skip = append(rest, g.field.exact()), "out"
		default:
			rest = append(rest, g.named())
		}
	}
	if rest = append(rest, flags...); len(rest) > 0 {
		out += "@" + strings.Join(rest, "/")
	}
	return out
}

// named is the figure with its name, or the word for it.
func (g figure) named() string {
	if d, ok := g.field.(*bidirectional); ok && Bidirectional(*d) == HalfDuplex {
		return halfDuplex
	}
	return g.key + "=" + g.field.exact()
}

// alike compares two devices but for their names.
func alike(a, b Device) bool {
	a.Name = b.Name
	return reflect.DeepEqual(a, b)
}

// peerItems writes one part where every pair of GPUs is linked alike, else one per pair.
func (m Machine) peerItems() []string {
	var items []string
	pairs := m.gpuPairs()
	uniform := len(pairs) > 0 && len(pairs) == len(m.Peers)
	for i, p := range m.Peers {
		uniform = uniform && p == Peer{pairs[i][0], pairs[i][1], m.Peers[0].Rate}
		items = append(items, "peer:"+p.A+"-"+p.B+"@"+(*rate)(&p.Rate).exact())
	}
	if uniform {
		return []string{"peer@" + (*rate)(&m.Peers[0].Rate).exact()}
	}
	return items
}

// Describe tells the whole machine to people: one line per figure, with where the
// figure came from, then what could not be had.
func (m Machine) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine  %s\n", m.Name)
	for i := range m.Devices {
		d := &m.Devices[i]
		describe(&b, d.Name, d.title(), figures{d.figures(), &d.Sources})
	}
	describe(&b, "host", m.Host.title(), figures{m.Host.figures(), &m.Host.Sources})
	if m.HasDisk() {
		describe(&b, "disk", m.Disk.Path, figures{m.Disk.figures(), &m.Disk.Sources})
	} else {
		b.WriteString("disk     none\n")
	}
	for _, p := range m.Peers {
		fmt.Fprintf(&b, "peer     %s-%s at %v each way\n", p.A, p.B, p.Rate)
	}
	if !m.Calibrated.IsZero() {
		fmt.Fprintf(&b, "measured %s\n", m.Calibrated.UTC().Format("2006-01-02 15:04 MST"))
	}
	for _, n := range m.Notes {
		fmt.Fprintf(&b, "note     %s\n", n)
	}
	return b.String()
}

func (d *Device) title() string {
	title := strings.TrimSpace(string(d.Kind) + " " + d.Model)
	if d.Shared {
		title += ", memory shared with the host"
	}
	if d.Link.Bidirectional == HalfDuplex {
		title += ", link one way at a time"
	}
	return title
}

func (h *Host) title() string {
	return strings.TrimSpace(h.CPU + " " + strings.Join(h.Features, " "))
}

func describe(b *strings.Builder, name, title string, f figures) {
	b.WriteString(strings.TrimRight(fmt.Sprintf("%-8s %s", name, title), " ") + "\n")
	for _, g := range f.all {
		if !g.field.zero() {
			fmt.Fprintf(b, "  %-10s %12s  %s\n", g.key, g.field, (*f.sources)[g.key])
		}
	}
}
