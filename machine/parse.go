package machine

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"spillway/internal/suggest"
)

// Grammar explains the language of Parse, for help texts. The list of figures comes from
// the tables of figures.
var Grammar = `a machine is a list of parts separated by commas:
  gpu:24GiB                        a GPU by its memory
  gpu:24GiB@25GB/s/165TFLOPS       with its link to the host (each direction) and its bf16 matmuls
  rtx4090, 2xh100, h200:48GiB      a GPU by name, two of them, one with part of its memory
  cpu:16GiB                        a CPU device whose memory is exactly that, next to the host's
  cpu:16GiB@shared,host:16GiB      a computer without a GPU: 16 GiB of RAM are all there is
  host:64GiB@20GB/s/1TFLOPS        RAM, copy rate of all cores, f32 matmuls
  disk:2TiB@3GB/s                  free space and read rate
  peer@300GB/s, peer:gpu0-gpu1@50GB/s   a direct link between all GPUs, or two of them, each way
  peer:none                        no direct links: a100, h100, h200 and b200 by name are SXM modules, up to 8
                                   on a board with NVLink; h100-pcie, a100-pcie and all others have none
after @ come figures separated by "/"; any of these can be given by name:
` + (&Device{}).figures().grammar("of a GPU or CPU; shared: its memory is part of the host's") +
	(&Host{}).figures().grammar("of the host") + strings.TrimRight((&Disk{}).figures().grammar("of the disk"), "\n")

// grammar is a line for each figure.
func (f figures) grammar(title string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s\n", title)
	for _, g := range f.list {
		fmt.Fprintf(&b, "    %-26s %s\n", g.key+"="+g.field.example(), g.help)
	}
	return b.String()
}

// maxDevices keeps a typing error from filling memory.
const maxDevices = 128

// Parse reads a description in the language of Grammar. What the description does not say
// is filled in by Complete and marked so in Sources.
//
// Without a disk part there is no disk tier, without a peer part GPUs have the direct links
// that their usual form has, and without a host part the host has twice the memory of the
// devices.
func Parse(text string) (Machine, error) {
	var m Machine
	p := parser{seen: map[string]bool{}}
	for i, item := range strings.Split(text, ",") {
		if err := p.item(&m, strings.TrimSpace(item)); err != nil {
			return Machine{}, fmt.Errorf("machine %q, part %d %q: %w", text, i+1, strings.TrimSpace(item), err)
		}
	}
	if len(m.Devices) == 0 {
		return Machine{}, fmt.Errorf("machine %q has no device; add one such as gpu:24GiB, rtx4090 or cpu:16GiB", text)
	}
	m.Complete()
	if err := p.link(&m); err != nil {
		return Machine{}, fmt.Errorf("machine %q: %w", text, err)
	}
	m.Name = m.String()
	if err := m.Check(); err != nil {
		for _, d := range m.Devices {
			if d.Kind == GPU && d.Memory <= contextOverhead {
				return Machine{}, fmt.Errorf("%w; a GPU needs %v for its context: give it more memory, add @usable=..., or use cpu:%s", err, contextOverhead, size(&d.Memory).exact())
			}
		}
		return Machine{}, fmt.Errorf("%w; usable= must not be above the memory", err)
	}
	return m, nil
}

// parser holds the direct links, which are made when all devices are known, and whether the
// parts that may come only once have come.
type parser struct {
	links []peerItem
	seen  map[string]bool // kinds of parts that are no devices
}

// part is one item cut at its punctuation: [N x] kind [: size] [@ figure / figure ...].
type part struct {
	times   int
	kind    string
	size    string
	sized   bool
	figures []string
}

func cut(item string) (part, error) {
	p := part{times: 1}
	head, tail, at := strings.Cut(item, "@")
	for f := range strings.SplitSeq(tail, "/") { // but for the "/s" of a rate: "55GB/s/165TFLOP/s"
		f = strings.TrimSpace(f)
		if n := len(p.figures); f == "s" && n > 0 && !strings.HasSuffix(p.figures[n-1], "/s") {
			p.figures[n-1] += "/s"
		} else if at {
			p.figures = append(p.figures, f)
		}
	}
	p.kind, p.size, p.sized = strings.Cut(head, ":")
	p.kind, p.size = strings.ToLower(strings.TrimSpace(p.kind)), strings.TrimSpace(p.size)
	if n, rest, ok := strings.Cut(p.kind, "x"); ok && n != "" && strings.Trim(n, "0123456789") == "" {
		times, err := strconv.Atoi(n)
		if err != nil || times < 1 || times > maxDevices {
			return p, fmt.Errorf("%q devices; between 1 and %d are possible", n, maxDevices)
		}
		p.times, p.kind = times, rest
	}
	return p, nil
}

func (p *parser) item(m *Machine, item string) error {
	if item == "" {
		return fmt.Errorf("it is empty; %s", partHint)
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
		if p.seen[c.kind] && c.kind != "peer" {
			return errors.New("it is there twice; keep one")
		}
		p.seen[c.kind] = true
	}
	switch c.kind {
	case "host":
		return c.read(m.Host.figures(), "memory", "copy", "f32")
	case "disk":
		return c.read(m.Disk.figures(), "free", "read", "")
	case "peer":
		return p.peer(c)
	}
	return c.devices(m)
}

// otherMakers are how the names of GPUs begin that are known and cannot be used.
var otherMakers = map[string]*regexp.Regexp{
	"AMD":    regexp.MustCompile(`^(mi\d|rx|radeon|instinct|w7)`),
	"Apple":  regexp.MustCompile(`^(m[1-9]([-_]?(pro|max|ultra))?$|apple|metal|mps)`),
	"Intel":  regexp.MustCompile(`^(arc|gaudi|xe|b580|a770)`),
	"Google": regexp.MustCompile(`^tpu`),
}

// partHint shows the parts of a machine by example.
const partHint = "write parts such as gpu:24GiB, cpu:16GiB, host:64GiB, disk:2TiB, peer@50GB/s"

// devices adds the devices that this part describes.
func (c part) devices(m *Machine) error {
	d := Device{Kind: GPU}
	model, named := findModel(c.kind)
	switch {
	case c.kind == "cpu":
		d.Kind = CPU
	case named:
		d.Model = model.name
	case c.kind != "gpu":
		if generation, capability := older(c.kind); generation != "" {
			return fmt.Errorf("%q is a GPU of the %s generation, whose compute capability is %s at most, and GPUs need %d.%d, of the Ampere generation (A10, RTX 3060 and newer): such a computer computes on its CPU, which with 16 GiB of RAM is cpu:16GiB@shared,host:16GiB; what a newer GPU would be worth, plan with gpu:16GiB",
				c.kind, generation, capability, LeastCapability/10, LeastCapability%10)
		}
		for maker, begin := range otherMakers {
			if begin.MatchString(c.kind) {
				return fmt.Errorf("%q is a GPU of %s, which cannot be used yet: GPUs of NVIDIA can, and any CPU, which with 16 GiB of RAM is cpu:16GiB@shared,host:16GiB; what the GPU would be worth, plan with its figures, as in gpu:24GiB@26GB/s/120TFLOPS", c.kind, maker)
			}
		}
		return fmt.Errorf("unknown machine part %q%s; %s, or a GPU by name: %s", c.kind, suggest.Hint(c.kind, GPUNames()), partHint, strings.Join(GPUNames(), ", "))
	}
	if !named && !c.sized {
		return fmt.Errorf("it has no size; write %s:24GiB", c.kind)
	}
	var rest []string // but for words that are not figures
	for _, f := range c.figures {
		switch f {
		case halfDuplex:
			rest = append(rest, "bidirectional="+HalfDuplex.String())
		case "shared":
			d.Shared = true
		default:
			rest = append(rest, f)
		}
	}
	c.figures = rest
	arithmetic := "bf16"
	if d.Kind == CPU {
		arithmetic = "f32"
	}
	if err := c.read(d.figures(), "memory", "link", arithmetic); err != nil {
		return err
	}
	if len(m.Devices)+c.times > maxDevices {
		return fmt.Errorf("more than %d devices", maxDevices)
	}
	for range c.times {
		m.Add(d)
	}
	return nil
}

// read sets the size and the figures of the part. A rate in B/s without a name is the
// figure rateKey, one in FLOPS the figure flopsKey.
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

// parseFigure sets one figure, given by its name or recognised by its unit.
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
	return fmt.Errorf("unknown figure %q; write a rate such as 25GB/s or key=value, where the keys are %s", text, f.keys())
}

// parse sets a figure and marks it as given. The key "link" stands for both directions.
func (f figures) parse(key, text string) error {
	keys := []string{key}
	if key == "link" && f.find("in") != nil {
		keys = []string{"in", "out"}
	}
	for _, k := range keys {
		field := f.find(k)
		if field == nil {
			return fmt.Errorf("unknown figure %q; known are %s", k, f.keys())
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
