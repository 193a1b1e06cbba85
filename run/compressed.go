package run

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"spillway/device"
	"spillway/dtype"
	"spillway/nn"
	"spillway/plan"
	"spillway/planner"
	"spillway/quant"
	"spillway/spec"
	"spillway/units"
	"spillway/weights"
)

// Compression says whether linear weights in bf16 are held in 12 bits each to compute with, see quant.CompressedBF16. It
// changes no bit of what is computed.
type Compression string

// The choices.
const (
	CompressAuto Compression = ""    // on CPUs that multiply by them faster
	CompressOn   Compression = "on"  // there, and where they stream to a GPU, or it is an error
	CompressOff  Compression = "off" // as bf16
)

// Compressions are the words for them.
var Compressions = []string{"auto", string(CompressOn), string(CompressOff)}

// ParseCompression reads one of them.
func ParseCompression(text string) (Compression, error) {
	switch {
	case text == Compressions[0]:
		return CompressAuto, nil
	case slices.Contains(Compressions, text):
		return Compression(text), nil
	}
	return CompressAuto, fmt.Errorf("compressing weights: %q; it is %s", text, strings.Join(Compressions, ", "))
}

// lacking is a plan that does not fit, and the options it was asked for with.
type lacking struct {
	*planner.FitError
	options Options
}

// less says whether it needs less than another that does not fit.
func (l *lacking) less(than *planner.FitError) bool {
	return l.Tier == than.Tier && l.Needed < than.Needed
}

// planCompressed is Plan with linear weights compressed, of those that can be; nil where none are to be, with what is lacking where that
// is memory.
func (m *Model) planCompressed(o Options) (*Run, *lacking, error) {
	on := o.CompressWeights == CompressOn
	if o.CompressWeights == CompressOff || o.interleaved || len(o.compressedWeights) > 0 {
		return nil, nil, nil
	}
	onCPU, err := m.refusesCompression(o)
	packed, stay := o, ""
	if err == nil {
		packed.interleaved, packed.decoded, packed.tries = onCPU, onCPU, o.tries || !on
		packed.compressedWeights, stay, err = m.compressible(packed)
	}
	if err == nil && len(packed.compressedWeights) == 0 {
		err = &SettingError{Err: fmt.Errorf("compressed weights: %s has none that can be: %s; leave the setting out", m.Name, stay)}
	}
	var plain, r *Run
	if err == nil && !onCPU {
		plain, err = m.planPlain(o, packed.compressedWeights)
	}
	if err == nil {
		r, err = packed.withinDriver(m.plan)
	}
	if err == nil && readsDisk(r.Plan) {
		err = fmt.Errorf("compressed weights, and %s reads weights from disk, where they are not: allow more memory, or leave the setting out", m.Name)
	}
	streams := ""
	if err == nil && !onCPU {
		r = m.decodesLess(packed, r)
		streams, err = r.comparedWith(plain, len(packed.compressedWeights))
	}
	switch {
	case err == nil:
		r.Options.tries = o.tries
		if on {
			r.Notices = append(slices.Clone(r.Notices), r.aboutCompressed(stay)+streams)
		}
		return r, nil, nil
	case on:
		return nil, nil, err
	}
	var fit *planner.FitError
	if errors.As(err, &fit) {
		packed.tries = o.tries
		return nil, &lacking{fit, packed}, nil
	}
	return nil, nil, nil
}

// refusesCompression says why compressed weights would have no effect; nil where they may have one, with whether a CPU multiplies
// by them.
func (m *Model) refusesCompression(o Options) (onCPU bool, err error) {
	refuse := func(format string, args ...any) (bool, error) {
		return false, &SettingError{Err: fmt.Errorf("compressed weights, and "+format+"; leave the setting out", args...)}
	}
	if o.Task != Infer && o.Task != Generate && o.Task != LoRA {
		return refuse("the task is %s: they are for %s and %s, and next to a GPU for %s", o.Task, Infer, Generate, LoRA)
	}
	d, err := o.withDefaults(m)
	if err != nil {
		return false, err
	}
	var fast bool
	for _, on := range o.On {
		c, has := on.(device.Decompressor)
		fast = has && c.Decompresses()
	}
	onCPU = d.computesOnCPU()
	switch {
	case onCPU && o.Task == LoRA:
		return refuse("the task is %s: a CPU has them for %s and %s", o.Task, Infer, Generate)
	case m.shared:
		return refuse("the weights of %s are read and written between passes", m.Name)
	case !onCPU && o.CompressWeights == CompressAuto:
		return refuse("%s is no CPU, and what they are worth elsewhere is not measured yet", d.Device)
	case d.Precision != dtype.BF16:
		return refuse("%s is computed in %v: weights in bf16 are compressed", m.Name, d.Precision)
	case onCPU && len(o.On) > 0 && !fast:
		return refuse("this CPU has no AVX2, with which they are read fast")
	case len(o.On) == 0 && o.CompressWeights == CompressAuto:
		return refuse("it is not known what the CPU can do")
	}
	return onCPU, nil
}

// sampled is how many numbers of weights that are made at random are looked at; all of them are alike.
const sampled = 1 << 16

// compressible names the linear weights that can be held in 12 bits, and says which stay in bf16. Files are looked at in parts, a sixteenth
// of each tensor: a tensor whose parts have at most half of the escapes that there is room for is one. Where a whole one has more, loading says so.
func (m *Model) compressible(o Options) (names map[string]bool, stay string, err error) {
	o, err = o.withDefaults(m)
	if err != nil {
		return nil, "", err
	}
	s, err := m.Trace(o, 1, o.Seq)
	if err != nil {
		return nil, "", err
	}
	from, err := (&Run{Model: m, Planned: Planned{Options: o, Spec: s}}).Weights()
	if err != nil {
		return nil, "", err
	}
	linear, err := m.linearNames(o)
	if err != nil {
		return nil, "", err
	}
	var last []int // on a GPU the head stays as it is: it is among the first to be stored there, and decoding it would take room for all of it
	if !o.interleaved {
		last = s.Blocks[len(s.Blocks)-1].Params
	}
	names = map[string]bool{}
	var other, shapes, escapes, head []string
	for id, p := range s.Params {
		switch {
		case !linear[p.Name] || o.Task.Trains() && !p.Frozen:
		case slices.Contains(last, id):
			head = append(head, p.Name)
		case p.Type.DType != dtype.BF16 && p.Type.DType != quant.BF16x32:
			other = append(other, p.Name)
		case o.interleaved && p.Type.DType == dtype.BF16 || !quant.CompressedShape(p.Type.Shape.Rows(), p.Type.Shape.Last()):
			shapes = append(shapes, p.Name)
		default:
			fits, err := m.compresses(from, p)
			if err != nil {
				return nil, "", err
			}
			if names[p.Name] = fits; !fits {
				delete(names, p.Name)
				escapes = append(escapes, p.Name)
			}
		}
	}
	return names, staying(other, shapes, escapes, head), nil
}

// linearNames are the weights of linear layers.
func (m *Model) linearNames(o Options) (map[string]bool, error) {
	net, err := m.network(o)
	if err != nil {
		return nil, err
	}
	list, err := onlyLinears(net)
	names := map[string]bool{}
	for _, p := range list {
		names[p.Name] = true
	}
	return names, err
}

// compresses says whether a weight can be compressed, by a part of it.
func (m *Model) compresses(from weights.Values, p spec.Param) (bool, error) {
	elements := p.Type.Shape.Elements()
	sample := max(sampled, elements/16)
	if m.Folder == nil {
		sample = sampled
	}
	counts, looked, err := weights.UpperBytes(from, p.Name, elements, sample)
	if err != nil {
		return false, fmt.Errorf("looking at %s: %w", p.Name, err)
	}
	return counts.Escapes() <= looked/(2*quant.CompressedRoom), nil
}

// staying says which weights are not compressed, and why.
func staying(other, shapes, escapes, head []string) string {
	var parts []string
	for _, list := range []struct {
		names []string
		why   string
	}{{other, "in other types"}, {shapes, "of shapes that are not whole blocks of 32 by 32"}, {escapes, "with too many exponents"}, {head, "of the last block, which has a step's logits"}} {
		if n := len(list.names); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", n, list.why, shortNames(list.names)))
		}
	}
	if len(parts) == 0 {
		return "no other linear weights"
	}
	return strings.Join(parts, ", ")
}

// shortNames names the first of a list.
func shortNames(names []string) string {
	const shown = 2
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// aboutCompressed says what compressed weights take, and what is not compressed.
func (r *Run) aboutCompressed(stay string) string {
	var count int
	var elements, bytes int64
	for _, p := range r.Spec.Params {
		if p.Type.DType == quant.CompressedBF16 {
			count, elements, bytes = count+1, elements+p.Type.Shape.Elements(), bytes+p.Type.Bytes()
		}
	}
	return fmt.Sprintf("%d linear weights are held in %.2f bits each, exactly: %v instead of %v; not compressed: %s",
		count, 8*float64(bytes)/float64(max(elements, 1)), units.Bytes(bytes), units.Bytes(dtype.BF16.Bytes(elements)), stay)
}

// holdCompressed has some of the linear weights held compressed. Where nothing is trained the other params of a block that streams are frozen
// too, so that all of it is one buffer.
func (o Options) holdCompressed(net nn.Model) error {
	linears, err := onlyLinears(net)
	for _, p := range linears {
		if o.compressedWeights[p.Name] && (p.Storage == quant.BF16x32 || p.Storage == dtype.Invalid) {
			p.Storage, p.Frozen = quant.CompressedBF16, true
		}
	}
	if err != nil || o.interleaved || o.Task.Trains() || len(o.compressedWeights) == 0 {
		return err
	}
	all, err := nn.Bind(net)
	for _, p := range all {
		p.Frozen = true
	}
	return err
}

// compressedIn names the weights that a plan holds compressed.
func compressedIn(p *plan.Plan) map[string]bool {
	names := map[string]bool{}
	for _, s := range p.Slabs {
		for _, q := range s.Params {
			if q.Type.DType == quant.CompressedBF16 {
				names[q.Name] = true
			}
		}
	}
	return names
}

// asBF16 plans again with weights in bf16, where one turned out to have more exponents while it was loaded than its parts have. It is false where that is not
// what failed.
func (r *Run) asBF16(failed error) (bool, error) {
	var full *quant.RoomError
	if !errors.As(failed, &full) || len(r.Options.compressedWeights) == 0 {
		return false, failed
	}
	o := r.Options
	o.compressedWeights, o.CompressWeights = nil, CompressOff
	again, err := r.Model.Plan(o)
	if err != nil {
		return false, errors.Join(failed, err)
	}
	r.note("weights are held in bf16 instead of 12 bits each: %v", full)
	r.Planned = again.Planned
	return true, nil
}
