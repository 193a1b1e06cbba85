package machine

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// String writes the machine in the language of Parse. It leaves out what is published or
// assumed, because Parse fills that in again: parsing the string of a described machine
// gives that machine. Of a measured one the string has the measured figures, but not the
// path of the disk, the name of the CPU, per-shape tables and notes.
func (m Machine) String() string {
	var items []string
	for i := 0; i < len(m.Devices); {
		n := 1
		for ; i+n < len(m.Devices); n++ {
			other := m.Devices[i+n]
			if other.Name = m.Devices[i].Name; !reflect.DeepEqual(m.Devices[i], other) {
				break
			}
		}
		item := m.Devices[i].String()
		if n > 1 {
			item = strconv.Itoa(n) + "x" + item
		}
		items = append(items, item)
		i += n
	}
	if host := write("host", "memory", "", m.Host.figures()); host != "host" {
		items = append(items, host)
	}
	if m.HasDisk() {
		items = append(items, write("disk", "free", "read", m.Disk.figures()))
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
	return write(kind, "memory", flops, d.figures(), flags...)
}

// write gives "kind:size@figure/figure/flag". The figure whose key is bare is written
// without its name, and so are the rates of a link that are equal in both directions.
func write(kind, sizeKey, bare string, f figures, flags ...string) string {
	out, rest := kind, []string(nil)
	skip := ""
	for _, g := range f.list {
		s := (*f.sources)[g.key]
		switch {
		case s != Given && s != Measured || g.key == skip:
		case g.key == sizeKey:
			out += ":" + g.field.exact()
		case g.key == bare:
			rest = append(rest, g.field.exact())
		case g.key == "in" && (*f.sources)["out"] == s && g.field.exact() == f.find("out").exact():
			rest, skip = append(rest, g.field.exact()), "out"
		case g.key == "bidirectional" && g.field.exact() == shares.exact(HalfDuplex):
			rest = append(rest, halfDuplex)
		default:
			rest = append(rest, g.key+"="+g.field.exact())
		}
	}
	if rest = append(rest, flags...); len(rest) > 0 {
		out += "@" + strings.Join(rest, "/")
	}
	return out
}

// peerItems writes nothing where GPUs have the links that their names stand for, one part where every pair of GPUs has the
// same link, else one per pair.
func (m Machine) peerItems() []string {
	usual := m.UsualPeers()
	if slices.Equal(usual, m.Peers) {
		return nil
	}
	if len(m.Peers) == 0 {
		return []string{"peer:" + noPeers}
	}
	var items []string
	pairs := m.gpuPairs()
	uniform := len(pairs) == len(m.Peers)
	for i, p := range m.Peers {
		uniform = uniform && [2]string{p.A, p.B} == pairs[i] && p.Rate == m.Peers[0].Rate
		items = append(items, "peer:"+p.A+"-"+p.B+"@"+rate(&p.Rate).exact())
	}
	if uniform {
		return []string{"peer@" + rate(&m.Peers[0].Rate).exact()}
	}
	return items
}

// Describe writes the whole machine for people: one line per figure with its source, then
// the notes.
func (m Machine) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine  %s\n", m.Name)
	for i := range m.Devices {
		d := &m.Devices[i]
		describe(&b, d.Name, d.title(), d.figures())
	}
	describe(&b, "host", strings.TrimSpace(m.Host.CPU+" "+strings.Join(m.Host.Features, " ")), m.Host.figures())
	if m.HasDisk() {
		describe(&b, "disk", m.Disk.Path, m.Disk.figures())
	} else {
		b.WriteString("disk     none\n")
	}
	for _, p := range m.Peers {
		fmt.Fprintf(&b, "peer     %s-%s at %v in each direction  %s\n", p.A, p.B, p.Rate, cmp.Or(p.Source, Given))
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
		title += ", half-duplex link"
	}
	return title
}

func describe(b *strings.Builder, name, title string, f figures) {
	b.WriteString(strings.TrimRight(fmt.Sprintf("%-8s %s", name, title), " ") + "\n")
	for _, g := range f.list {
		if !g.field.zero() {
			fmt.Fprintf(b, "  %-14s %12s  %s\n", g.key, g.field, (*f.sources)[g.key])
		}
	}
}
