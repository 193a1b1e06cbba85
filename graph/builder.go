package graph

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// Task is what a program is traced for.
type Task string

// The tasks.
const (
	Infer    Task = "infer"    // the last block gives logits
	Eval     Task = "eval"     // the last block gives the loss, dropout is off
	Train    Task = "train"    // the loss, with dropout, to be differentiated
	Generate Task = "generate" // the logits of some rows, keys and values are cached
)

// Config is what model code may know while it is traced.
type Config struct {
	MicroBatchSize int64      // samples in a micro-batch
	Seq            int64      // positions per sample
	DType          dtype.Type // of activations and weights
	Task           Task
	// Packed: samples hold several documents, which the batch tensor "segments" distinguishes.
	Packed bool
	// Document is how many tokens the document has that a position of a packed sample is
	// in, on average; 0: samples are one document. Only forecasts depend on it.
	Document int64
	// LogitsOf is, of the task Infer, how many positions of each sample get logits: those that the
	// batch tensor "outputs" names; 0 is all. Logits of every position are mostly more bytes than
	// everything else that a pass makes.
	LogitsOf int64 `json:",omitempty"`
	// Outputs: the model is trained for a loss that is no part of it. Its last block is traced as for
	// Infer and gives the outputs, and their gradient is a tensor of the batch.
	Outputs bool `json:",omitempty"`
	// Centralize: gradients of params of two dimensions or more have the mean over all dimensions but the first taken
	// off (gradient centralization).
	Centralize bool `json:",omitempty"`
	// Cache is what attention stores between steps, of the task Generate; nil otherwise. A
	// step then has MicroBatchSize 1 and as many rows as Seq says: tokens of any sequences.
	Cache *KVCache `json:",omitempty"`
}

// Training says whether the model trains, as PyTorch's module.training: also in a last block that is traced as for Infer since the
// loss is computed elsewhere.
func (c *Config) Training() bool { return c.Task == Train || c.Outputs }

// Builder records the ops of one block. It remembers the first mistake: after that all
// methods return no value, and Program reports it with the line of model code, so
// that models read without error checks.
type Builder struct {
	Config
	program Program
	inputs  map[string]Value // batch parts and params by role and name
	caches  []Port           // what the block leaves in its caches
	follows map[Value]Value  // by running statistic: what it will be
	streams uint32
	err     error
	block   Value // marks the values that model code gets, see ofBlock
}

// Values of a block are marked in the bits above the number that its program gives them, so that one which model code held on to in another
// block is told apart: it would name any tensor there.
const (
	valueBits   = 22     // four million values in a block
	blockMarks  = 1 << 9 // blocks that are told apart
	valueNumber = 1<<valueBits - 1
)

// NewBlockBuilder starts the program of the block of a model at a place.
func NewBlockBuilder(name string, c Config, place int) *Builder {
	b := NewBuilder(name, c)
	b.block = Value(1+place%(blockMarks-1)) << valueBits
	return b
}

// ofBlock is the number of a value in the program, 0 for no value; ok is false for one that is not of this block.
func (b *Builder) ofBlock(v Value) (number Value, ok bool) {
	if v == 0 {
		return 0, true
	}
	number = v &^ b.block
	return number, v > 0 && v&b.block == b.block && number > 0 && int(number) < len(b.program.Types) && (b.block == 0 || number <= valueNumber)
}

const foreign = "a value of another block: a block returns what the next one needs, which takes it as in[i]"

// NeedWholeBatch says that what is computed depends on all samples of a batch together, so that a batch
// must be one micro-batch.
func (b *Builder) NeedWholeBatch() { b.program.WholeBatch = true }

// Results makes one result of several tensors, each with the samples of the micro-batch as its first
// dimension: [B ..], a row for each sample. Names say which is which.
func (b *Builder) Results(names []string, values ...Value) Value {
	var rows []Value
	for i, v := range values {
		s := b.TypeOf(v).Shape
		if b.err != nil {
			return 0
		}
		if len(names) != len(values) || len(s) == 0 || s[0] != b.MicroBatchSize {
			b.Fail("result %d of %d names is %v; each has a name and the %d samples as first dimension", i, len(names), s, b.MicroBatchSize)
			return 0
		}
		b.program.Results = append(b.program.Results, ResultPart{names[i], s[1:]})
		rows = append(rows, b.Reshape(b.Cast(v, dtype.F32), s[0], -1))
	}
	if len(rows) == 1 {
		return rows[0]
	}
	return b.Concat(rows...)
}

// NewBuilder starts a program.
func NewBuilder(name string, c Config) *Builder {
	return &Builder{Config: c, program: Program{Name: name, Types: make([]op.Type, 1)}, inputs: map[string]Value{}, follows: map[Value]Value{}}
}

// Program ends the recording. Outputs are the carries to the next block, or the
// result when the block is the last one.
func (b *Builder) Program(role Role, out ...Value) (*Program, error) {
	if b.err != nil {
		return nil, b.err
	}
	for i, v := range out {
		v, ok := b.ofBlock(v)
		if !ok {
			return nil, fmt.Errorf("%s returns %s", b.program.Name, foreign)
		}
		if v == 0 {
			return nil, fmt.Errorf("%s returns no value", b.program.Name)
		}
		b.program.Outputs = append(b.program.Outputs, Port{Value: v, Role: role, Index: i})
	}
	p := b.program
	p.Outputs = append(p.Outputs, b.caches...)
	if b.Cache != nil && b.Cache.Exact {
		for i := range p.Nodes {
			p.Nodes[i].Attr.Exact = p.Nodes[i].Kind.MixesRows()
		}
	}
	return &p, p.Verify()
}

// Err is the first mistake so far.
func (b *Builder) Err() error { return b.err }

// Fail records a mistake of model code, with the line it was called from.
func (b *Builder) Fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("%s: %s: %w", b.program.Name, modelLine(), fmt.Errorf(format, args...))
	}
}

// TypeOf a value; the zero type for no value.
func (b *Builder) TypeOf(v Value) op.Type {
	v, ok := b.ofBlock(v)
	if !ok {
		b.Fail("%s", foreign)
	}
	if !ok || v == 0 {
		return op.Type{}
	}
	return b.program.Types[v]
}

// Input adds a carry from the block before.
func (b *Builder) Input(t op.Type) Value {
	return b.input(Port{Role: Carry, Index: count(b.program.Inputs, Carry)}, t)
}

// Part is a tensor of the batch by name; asked for twice it is the same value.
func (b *Builder) Part(name string, d dtype.Type, dims ...int64) Value {
	return b.named(Port{Role: Batch, Name: name}, op.Type{DType: d, Shape: dims})
}

// Param is a weight by name; asked for twice it is the same value.
func (b *Builder) Param(name string, t op.Type, frozen bool) Value {
	return b.named(Port{Role: Param, Name: name, Frozen: frozen}, t)
}

// Floats is a constant: a vector, or a tensor of the given dimensions.
func (b *Builder) Floats(name string, data []float32, dims ...int64) Value {
	raw := make([]byte, 4*len(data))
	dtype.F32.Encode(raw, data)
	return b.constant(name, raw, dtype.F32, len(data), dims)
}

// Integers is a constant of ids or indices, such as those of a bias by relative position.
func (b *Builder) Integers(name string, data []int32, dims ...int64) Value {
	raw := make([]byte, 0, 4*len(data))
	for _, n := range data {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(n))
	}
	return b.constant(name, raw, dtype.I32, len(data), dims)
}

// constant with the same name, numbers and shape is the same value.
func (b *Builder) constant(name string, raw []byte, d dtype.Type, elements int, dims []int64) Value {
	t := op.Type{DType: d, Shape: shape.Of(elements)}
	if len(dims) > 0 {
		t.Shape = dims
	}
	if t.Shape.Check() == nil && t.Shape.Elements() != int64(elements) {
		b.Fail("constant %s has %d numbers, shape %v has %d", name, elements, t.Shape, t.Shape.Elements())
		return 0
	}
	return b.named(Port{Role: Const, Name: name, Data: raw}, t)
}

func (b *Builder) named(p Port, t op.Type) Value {
	key := string(p.Role) + " " + p.Name
	if p.Role == Const {
		key += fmt.Sprintf(" %v %x", t, sha256.Sum256(p.Data))
	}
	if v, ok := b.inputs[key]; ok {
		if had := b.TypeOf(v); !had.Equal(t) {
			b.Fail("%s is %v and %v", key, had, t)
		}
		return v
	}
	p.Index = count(b.program.Inputs, p.Role)
	v := b.input(p, t)
	b.inputs[key] = v
	return v
}

func (b *Builder) input(p Port, t op.Type) Value {
	if b.err != nil {
		return 0
	}
	if err := t.Shape.Check(); err != nil {
		b.Fail("input %s %s: %w", p.Role, p.Name, err)
		return 0
	}
	if n := t.Shape.Elements(); n == 0 {
		b.Fail("input %s %s: shape %v has %d elements; tensors have at least 1", p.Role, p.Name, t.Shape, n)
		return 0
	}
	t.Shape = slices.Clone(t.Shape)
	p.Value = b.value(t)
	b.program.Inputs = append(b.program.Inputs, p)
	return p.Value | b.block
}

func (b *Builder) value(t op.Type) Value {
	b.program.Types = append(b.program.Types, t)
	return Value(len(b.program.Types) - 1)
}

// Apply records an op and returns its outputs. The methods in ops.go are its
// readable forms; use it for kinds that have none.
func (b *Builder) Apply(kind op.Kind, attr op.Attr, in ...Value) []Value {
	if b.err != nil {
		return make([]Value, 8)
	}
	types, in := make([]op.Type, len(in)), slices.Clone(in)
	for i, v := range in {
		var ok bool
		if in[i], ok = b.ofBlock(v); !ok {
			b.Fail("%s: operand %d is %s", kind, i, foreign)
			return make([]Value, 8)
		}
		if v == 0 {
			b.Fail("%s: operand %d is no value", kind, i)
			return make([]Value, 8)
		}
		types[i] = b.program.Types[in[i]]
	}
	attr = own(attr)
	if n := attr.Unusable(); n != nil {
		b.Fail("%s: a number of %v; it takes finite ones", kind, *n)
		return make([]Value, 8)
	}
	call, err := op.Make(kind, attr, types...)
	if err != nil {
		b.Fail("%w", err)
		return make([]Value, 8)
	}
	if err := b.checkIDs(call, in); err != nil {
		b.Fail("%w", err)
		return make([]Value, 8)
	}
	out, given := make([]Value, len(call.Out)), make([]Value, len(call.Out))
	for i, t := range call.Out {
		if n := t.Shape.Elements(); n == 0 {
			b.Fail("%s: its result is %v with %d elements; tensors have at least 1", kind, t, n)
			return make([]Value, 8)
		}
		out[i] = b.value(t)
		given[i] = out[i] | b.block
	}
	b.program.Nodes = append(b.program.Nodes, Node{Kind: kind, Attr: attr, In: in, Out: out, At: modelLine()})
	return given
}

// own is the attributes with slices of their own: those that callers gave stay theirs.
func own(a op.Attr) op.Attr {
	s := &a.Spatial
	for _, list := range []*[]int64{&a.Axes, &a.Sizes, (*[]int64)(&a.Shape), &s.Kernel, &s.Stride, &s.Padding, &s.Dilation} {
		*list = slices.Clone(*list)
	}
	return a
}

// checkIDs refuses constant ids that are outside of what they name; those of batches are looked at when they come.
func (b *Builder) checkIDs(c op.Call, in []Value) error {
	ids, has := c.IDs()
	if !has {
		return nil
	}
	read := in[ids.Operand]
	for i := len(b.program.Nodes) - 1; i >= 0; i-- { // back to what has all the same numbers
		if n := b.program.Nodes[i]; n.Out[0] == read && (n.Kind == op.Reshape || n.Kind == op.Permute || n.Kind == op.Expand) {
			read = n.In[0]
		}
	}
	at := slices.IndexFunc(b.program.Inputs, func(p Port) bool { return p.Role == Const && p.Value == read })
	if at < 0 {
		return nil
	}
	p := b.program.Inputs[at]
	for i := 0; i < len(p.Data); i += 4 {
		if n := int32(binary.LittleEndian.Uint32(p.Data[i:])); (n < 0 || int64(n) >= ids.Count) && !(ids.AllowsIgnored && n == op.IgnoreIndex) {
			return fmt.Errorf("%s: constant %s has %d at place %d, want 0 to %d", c.Kind, p.Name, n, i/4, ids.Count-1)
		}
	}
	return nil
}

// Stream gives a number for a random stream of this program.
func (b *Builder) Stream() uint32 {
	b.streams++
	return b.streams
}

// Panicked is the mistake of model code that panicked, with the line that did: the first mistake there was, which is mostly why, or the panic. It is called
// by the function that recovers.
func (b *Builder) Panicked(reason any) error {
	if b.err == nil {
		b.Fail("the code of the block failed: %v", reason)
	}
	return b.err
}

// layers are the packages that do not count as model code: this one, nn, autograd, and those that a panic passes through.
var layers = map[string]bool{"graph": true, "nn": true, "autograd": true, "spec": true, "runtime": true}

// lines caches the text of program counters: a model calls from few places, many times.
var lines sync.Map // uintptr to string, "" for a line of layers

// modelLine is the nearest line of model code, or a line of nn where there is none. It is
// mostly a few calls away; looking further takes longer.
func modelLine() (line string) {
	var pcs [24]uintptr
	for _, depth := range []int{6, len(pcs)} {
		for _, pc := range pcs[:runtime.Callers(3, pcs[:depth])] {
			var outside bool
			if line, outside = lineOf(pc); outside {
				return line
			}
		}
	}
	return line
}

// lineOf gives the line of a program counter and whether it is model code.
func lineOf(pc uintptr) (string, bool) {
	type found struct {
		line    string
		outside bool
	}
	if v, ok := lines.Load(pc); ok {
		f := v.(found)
		return f.line, f.outside
	}
	frames := runtime.CallersFrames([]uintptr{pc})
	var f found
	for more := true; more && !f.outside; {
		var frame runtime.Frame
		frame, more = frames.Next()
		f.line = fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		test := strings.HasSuffix(frame.File, "_test.go")
		f.outside = test || !layers[filepath.Base(filepath.Dir(frame.File))]
	}
	lines.Store(pc, f)
	return f.line, f.outside
}
