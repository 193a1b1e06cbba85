package machine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Grammar is the description language in one screen, for help texts and errors.
const Grammar = `a machine is parts with commas between them:
  gpu:24GiB                        a GPU by its memory
  gpu:24GiB@25GB/s/165TFLOPS       with its link to the host (each way) and its bf16 matrix product
  rtx4090, 2xh100, h200:48GiB      a card by name, two of them, one with part of its memory
  cpu:16GiB                        a CPU device whose memory is exactly that
  host:64GiB@20GB/s/1TFLOPS        RAM, copy rate of all cores, f32 matrix product
  disk:2TiB@3GB/s                  free space and read rate
  peer@300GB/s, peer:gpu0-gpu1@50GB/s   a direct link between all GPUs, or two of them
after @ figures are divided by "/", and any can be named: usable=22GiB in=25GB/s out=20GB/s latency=10us
  duplex=92% (what both ways carry at once, of what they carry alone; half-duplex is 50%)
  bf16= f16= tf32= f32= f8= bandwidth=1TB/s launch=5us kernel=2us shared bf16-lasting= (in work without pauses; f16-lasting= ...)
  traffic=160GB/s (of the host's memory, while its processor updates and copies go both ways)
  host: usable= limit= cores=16 copy= copy-one= update= f32=; disk: read= write=`

// maxDevices keeps a slip of the finger from filling memory.
const maxDevices = 128

// Parse reads a description in the language of Grammar. What it does not say is
// filled from the card's published figures or assumed, and marked so in Sources.
//
// A part left out: no disk means no disk tier, no peer means none, no host means an assumed
// one of twice the device memory.
func Parse(text string) (Machine, error) {
	var m Machine
	var p parser
	for i, item := range strings.Split(text, ",") {
		if err := p.item(&m, strings.TrimSpace(item)); err != nil {
			return Machine{}, fmt.Errorf("machine %q, part %d %q: %w", text, i+1, strings.TrimSpace(item), err)
		}
	}
	if len(m.Devices) == 0 {
		return Machine{}, fmt.Errorf("machine %q has no device; add one such as gpu:24GiB, rtx4090 or cpu:16GiB", text)
	}
	m.assume()
	if err := p.link(&m); err != nil {
		return Machine{}, fmt.Errorf("machine %q: %w", text, err)
	}
	m.Name = m.String()
	if err := m.Check(); err != nil {
		return Machine{}, fmt.Errorf("%w; %s", err, hint(m))
	}
	return m, nil
}

// hint names the usual slip behind a machine that fails Check.
func hint(m Machine) string {
	for _, d := range m.Devices {
		if d.Kind == GPU && d.Memory <= contextOverhead {
			return fmt.Sprintf("a GPU keeps %v for its context: give it more memory, say usable=..., or use cpu:%s", contextOverhead, (*size)(&d.Memory).exact())
		}
	}
	return "usable= must not be above the memory"
}

// parser holds what must wait until all devices are known, and what may come once.
type parser struct {
	peers      []peerItem
	host, disk bool
}

// part is one item cut at its punctuation: [N x] kind [: size] [@ figure / figure ...].
type part struct {
	times     int
	kind      string
	size      string
	figures   []string
	sized, at bool
}

func cut(item string) (part, error) {
	p := part{times: 1}
	head, tail, at := strings.Cut(item, "@")
	p.at = at
	if at {
		p.figures = splitFigures(tail)
	}
	p.kind, p.size, p.sized = strings.Cut(head, ":")
	p.kind, p.size = strings.ToLower(strings.TrimSpace(p.kind)), strings.TrimSpace(p.size)
	if n, rest, ok := strings.Cut(p.kind, "x"); ok && isDigits(n) {
		times, err := strconv.Atoi(n)
		if err != nil || times < 1 || times > maxDevices {
			return p, fmt.Errorf("%q devices; between 1 and %d are possible", n, maxDevices)
		}
		p.times, p.kind = times, rest
	}
	return p, nil
}

// splitFigures splits at "/" but keeps the "/s" of a rate: "55GB/s/165TFLOP/s".
func splitFigures(tail string) []string {
	var out []string
	for f := range strings.SplitSeq(tail, "/") {
		f = strings.TrimSpace(f)
		if n := len(out); f == "s" && n > 0 && !strings.HasSuffix(out[n-1], "/s") {
			out[n-1] += "/s"
			continue
		}
		out = append(out, f)
	}
	return out
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func (p *parser) item(m *Machine, item string) error {
	if item == "" {
		return errors.New("it is empty; " + Grammar)
	}
	c, err := cut(item)
	if err != nil {
		return err
	}
	switch c.kind {
	case "host", "disk", "peer":
		if c.times != 1 {
			return fmt.Errorf("only devices can be counted; %q cannot", c.kind)
		}
	}
	switch c.kind {
	case "host":
		return once(&p.host, func() error { return c.read(figures{m.Host.figures(), &m.Host.Sources}, "memory", "copy", "f32") })
	case "disk":
		return once(&p.disk, func() error { return c.read(figures{m.Disk.figures(), &m.Disk.Sources}, "free", "read", "") })
	case "peer":
		return p.peer(c)
	}
	return c.devices(m)
}

func once(done *bool, read func() error) error {
	if *done {
		return errors.New("it is there twice; keep one")
	}
	*done = true
	return read()
}

// devices adds the device of this part, as often as it says.
func (c part) devices(m *Machine) error {
	d := Device{Kind: GPU}
	_, named := findModel(c.kind)
	switch {
	case c.kind == "cpu":
		d.Kind = CPU
	case named:
		d.Model = c.kind
	case c.kind != "gpu":
		return fmt.Errorf("%q is no part and no card I know; cards: %s; %s", c.kind, strings.Join(GPUNames(), ", "), Grammar)
	}
	if !named && !c.sized {
		return fmt.Errorf("it has no size; write %s:24GiB", c.kind)
	}
	c.takeFlags(&d)
	arithmetic := "bf16"
	if d.Kind == CPU {
		arithmetic = "f32"
	}
	if err := c.read(figures{d.figures(), &d.Sources}, "memory", "link", arithmetic); err != nil {
		return err
	}
	if len(m.Devices)+c.times > maxDevices {
		return fmt.Errorf("more than %d devices", maxDevices)
	}
	for range c.times {
		m.add(d)
	}
	return nil
}

// takeFlags moves the words that are no figures from the part to the device, and writes
// those that stand for a figure as one.
func (c *part) takeFlags(d *Device) {
	var rest []string
	for _, f := range c.figures {
		switch f {
		case halfDuplex:
			rest = append(rest, "duplex="+HalfDuplex.String())
		case "shared":
			d.Shared = true
		default:
			rest = append(rest, f)
		}
	}
	c.figures = rest
}

// add appends a copy of the device under the next free name of its kind.
func (m *Machine) add(d Device) {
	n := 0
	for _, other := range m.Devices {
		if other.Kind == d.Kind {
			n++
		}
	}
	d.Name = string(d.Kind) + strconv.Itoa(n)
	sources := d.Sources
	d.Sources = Sources{}
	for k, s := range sources {
		d.Sources[k] = s
	}
	m.Devices = append(m.Devices, d)
}

// read sets the size and the figures of the part. Figures without a name are the
// rate and the arithmetic named here.
func (c part) read(f figures, sizeKey, rateKey, flopsKey string) error {
	if c.sized {
		if err := f.parse(sizeKey, c.size); err != nil {
			return err
		}
	} else if sizeKey == "free" {
		return errors.New("it has no size; write disk:2TiB")
	}
	for _, text := range c.figures {
		if err := f.parseFigure(text, rateKey, flopsKey); err != nil {
			return err
		}
	}
	return nil
}

// giveAny sets one figure, named or recognised by its unit.
func (f figures) parseFigure(text, rateKey, flopsKey string) error {
	if key, value, named := strings.Cut(text, "="); named {
		return f.parse(strings.ToLower(strings.TrimSpace(key)), value)
	}
	lower := strings.ToLower(text)
	switch {
	case strings.HasSuffix(lower, "b/s"):
		return f.parse(rateKey, text)
	case flopsKey != "" && (strings.HasSuffix(lower, "flops") || strings.HasSuffix(lower, "flop/s")):
		return f.parse(flopsKey, text)
	}
	return fmt.Errorf("%q is not a figure I know after @; %s", text, Grammar)
}

// give sets a figure and marks it as given. "link" is both directions.
func (f figures) parse(key, text string) error {
	keys := []string{key}
	if key == "link" && f.find("in") != nil {
		keys = []string{"in", "out"}
	}
	for _, k := range keys {
		field := f.find(k)
		if field == nil {
			return fmt.Errorf("there is no figure %q here; %s", k, Grammar)
		}
		if _, twice := (*f.sources)[k]; twice {
			return fmt.Errorf("%s is there twice; keep one", k)
		}
		if err := field.parse(strings.TrimSpace(text)); err != nil {
			return err
		}
		f.set(k, Given)
	}
	return nil
}
