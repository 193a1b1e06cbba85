package pickle

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/shape"
)

// tensor is one that a pickle describes.
type tensor struct {
	name    string
	storage storage
	offset  int64 // elements
	shape   shape.Shape
	strides []int64
}

// storage is where the bytes of tensors are.
type storage struct {
	kind dtype.Type
	key  string // its file in the zip
}

// Values on the machine's stack, besides bool, int64, float64, string, nil, storage and tensor.
type (
	mark  struct{}
	name  string // of a function or type: "torch.FloatStorage"
	tuple []any
	list  struct{ items []any }
	dict  struct{ keys, values []any }
)

// The names that may occur. Calling one makes what its comment says.
const (
	orderedDict     = "collections.OrderedDict"            // a dict
	rebuildTensor   = "torch._utils._rebuild_tensor_v2"    // a tensor
	rebuildParam    = "torch._utils._rebuild_parameter"    // its first argument
	rebuildOldParam = "torch._utils._rebuild_parameter_v2" // its first argument
	size            = "torch.Size"                         // a tuple
	storagePrefix   = "torch."                             // and a name of storages: never called
	stackLimit      = 1 << 20
)

// machine carries out the opcodes that dictionaries of tensors need.
type machine struct {
	in    []byte
	at    int
	stack []any
	memo  map[uint32]any

	storages map[string]storage // that it refers to, by their keys
}

func newMachine(raw []byte) *machine {
	return &machine{in: raw, memo: map[uint32]any{}, storages: map[string]storage{}}
}

// load reads a pickled dictionary of tensors.
func load(raw []byte) ([]tensor, error) {
	m := newMachine(raw)
	v, err := m.run()
	if err != nil {
		return nil, fmt.Errorf("its pickle, at byte %d: %w", m.at, err)
	}
	return tensorsOf(v)
}

// get is the value of a key, nil where there is none.
func (d *dict) get(key string) any {
	for i, k := range d.keys {
		if k == any(key) {
			return d.values[i]
		}
	}
	return nil
}

// tensorsOf are those of a dictionary.
func tensorsOf(v any) ([]tensor, error) {
	d, ok := v.(*dict)
	if !ok {
		return nil, fmt.Errorf("it holds %s, not a dictionary of tensors", kindOf(v))
	}
	var all []tensor
	for i, k := range d.keys {
		key, ok := k.(string)
		if !ok {
			return nil, fmt.Errorf("it holds %s as a key, not the name of a tensor", kindOf(k))
		}
		t, ok := d.values[i].(tensor)
		if !ok {
			return nil, fmt.Errorf("%q is %s, not a tensor; save the model's state_dict alone", key, kindOf(d.values[i]))
		}
		t.name = key
		all = append(all, t)
	}
	return all, nil
}

// kindOf says what a value is.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case name:
		return "the function or type " + string(v)
	case *dict:
		return "a dictionary"
	case *list:
		return "a list"
	}
	return strings.TrimPrefix(fmt.Sprintf("a %T", v), "a pickle.")
}

// take reads n bytes.
func (m *machine) take(n int) ([]byte, error) {
	if n < 0 || n > len(m.in)-m.at {
		return nil, fmt.Errorf("%d bytes are wanted, %d are left: %w", n, len(m.in)-m.at, errShort)
	}
	b := m.in[m.at : m.at+n]
	m.at += n
	return b, nil
}

// number reads a little-endian number of n bytes.
func (m *machine) number(n int) (uint64, error) {
	b, err := m.take(n)
	if err != nil {
		return 0, err
	}
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:]), nil
}

// line reads up to the end of a line.
func (m *machine) line() (string, error) {
	n := slices.Index(m.in[m.at:], '\n')
	if n < 0 {
		return "", fmt.Errorf("a line does not end: %w", errShort)
	}
	b, err := m.take(n + 1)
	return string(b[:max(len(b)-1, 0)]), err
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

func (m *machine) pop() (any, error) {
	if len(m.stack) == 0 {
		return nil, fmt.Errorf("the stack is empty")
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v, nil
}

// popMark takes what lies above the last mark.
func (m *machine) popMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if _, ok := m.stack[i].(mark); ok {
			items := slices.Clone(m.stack[i+1:])
			m.stack = m.stack[:i]
			return items, nil
		}
	}
	return nil, fmt.Errorf("there is no mark")
}

// top is the last value, which stays.
func (m *machine) top() (any, error) {
	if len(m.stack) == 0 {
		return nil, fmt.Errorf("the stack is empty")
	}
	return m.stack[len(m.stack)-1], nil
}

// run carries out opcodes until the end.
func (m *machine) run() (any, error) {
	for {
		if len(m.stack) > stackLimit || len(m.memo) > stackLimit {
			return nil, fmt.Errorf("more than %d values", stackLimit)
		}
		op, err := m.take(1)
		if err != nil {
			return nil, err
		}
		if op[0] == '.' {
			return m.pop()
		}
		if err := m.step(op[0]); err != nil {
			return nil, err
		}
	}
}

// step carries out one opcode.
func (m *machine) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		_, err := m.take(1)
		return err
	case 0x95: // FRAME
		_, err := m.take(8)
		return err
	case '(':
		m.push(mark{})
	case 'N':
		m.push(nil)
	case 0x88, 0x89:
		m.push(op == 0x88)
	case '}':
		m.push(&dict{})
	case ']':
		m.push(&list{})
	case ')':
		m.push(tuple{})
	case 'K', 'M', 'J', 'G', 0x8a, 'X', 0x8c, 0x8d:
		return m.literal(op)
	case 'c', 0x93:
		return m.global(op)
	case 'q', 'r', 0x94, 'h', 'j':
		return m.remember(op)
	case 't', 0x85, 0x86, 0x87:
		return m.tuple(op)
	case 's', 'u', 'a', 'e':
		return m.fill(op)
	case 'Q':
		return m.persistent()
	case 'R':
		return m.reduce()
	case 'b':
		return m.build()
	default:
		return fmt.Errorf("opcode %#x, which a dictionary of tensors does not need", op)
	}
	return nil
}

// literal pushes a number or a text.
func (m *machine) literal(op byte) error {
	widths := map[byte]int{'K': 1, 'M': 2, 'J': 4, 'G': 8, 0x8a: 1, 'X': 4, 0x8c: 1, 0x8d: 8}
	if op == 'G' { // big-endian
		b, err := m.take(8)
		if err == nil {
			m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
		}
		return err
	}
	n, err := m.number(widths[op])
	if err != nil {
		return err
	}
	switch op {
	case 'K', 'M':
		m.push(int64(n))
	case 'J':
		m.push(int64(int32(n)))
	case 0x8a: // LONG1
		if n > 8 {
			return fmt.Errorf("a number of %d bytes", n)
		}
		b, err := m.take(int(n))
		if err != nil {
			return err
		}
		var wide [8]byte
		copy(wide[:], b)
		v := int64(binary.LittleEndian.Uint64(wide[:]))
		if n > 0 && n < 8 && b[n-1]&0x80 != 0 {
			v -= 1 << (8 * n)
		}
		m.push(v)
	default:
		if n > uint64(len(m.in)) {
			return fmt.Errorf("a text of %d bytes: %w", n, errShort)
		}
		b, err := m.take(int(n))
		if err != nil {
			return err
		}
		m.push(string(b))
	}
	return nil
}

// global pushes the name of a function or type that is known.
func (m *machine) global(op byte) error {
	var parts [2]string
	if op == 'c' {
		for i := range parts {
			var err error
			if parts[i], err = m.line(); err != nil {
				return err
			}
		}
	} else {
		for i := range parts {
			v, err := m.pop()
			if err != nil {
				return err
			}
			text, ok := v.(string)
			if !ok {
				return fmt.Errorf("a name that is %s", kindOf(v))
			}
			parts[1-i] = text
		}
	}
	full := parts[0] + "." + parts[1]
	short, isTorch := strings.CutPrefix(full, storagePrefix)
	_, isStorage := storages[short]
	if !isTorch || !isStorage {
		if !slices.Contains([]string{orderedDict, rebuildTensor, rebuildParam, rebuildOldParam, size}, full) {
			return fmt.Errorf("it names %.120q, which weights do not need: loading it in Python could run anything; it is not read", full)
		}
	}
	m.push(name(full))
	return nil
}

// remember stores the last value under a number, or pushes what is stored.
func (m *machine) remember(op byte) error {
	var n uint64
	var err error
	switch op {
	case 'q', 'h':
		n, err = m.number(1)
	case 'r', 'j':
		n, err = m.number(4)
	default:
		n = uint64(len(m.memo))
	}
	if err != nil {
		return err
	}
	if op == 'h' || op == 'j' {
		v, ok := m.memo[uint32(n)]
		if !ok {
			return fmt.Errorf("value %d is not stored", n)
		}
		m.push(v)
		return nil
	}
	v, err := m.top()
	m.memo[uint32(n)] = v
	return err
}

// tuple makes one of the last values.
func (m *machine) tuple(op byte) error {
	if op == 't' {
		items, err := m.popMark()
		m.push(tuple(items))
		return err
	}
	n := int(op) - 0x84
	if len(m.stack) < n {
		return fmt.Errorf("a tuple of %d values, the stack has %d", n, len(m.stack))
	}
	items := slices.Clone(m.stack[len(m.stack)-n:])
	m.stack = m.stack[:len(m.stack)-n]
	m.push(tuple(items))
	return nil
}

// fill puts values into the dictionary or list below them.
func (m *machine) fill(op byte) (err error) {
	var items []any
	switch op {
	case 'u', 'e':
		items, err = m.popMark()
	case 's', 'a':
		n := map[byte]int{'s': 2, 'a': 1}[op]
		if len(m.stack) < n {
			return fmt.Errorf("the stack has %d values, %d are needed", len(m.stack), n)
		}
		items = slices.Clone(m.stack[len(m.stack)-n:])
		m.stack = m.stack[:len(m.stack)-n]
	}
	if err != nil {
		return err
	}
	into, err := m.top()
	if err != nil {
		return err
	}
	switch into := into.(type) {
	case *dict:
		if op != 's' && op != 'u' || len(items)%2 != 0 {
			return fmt.Errorf("%d values for a dictionary", len(items))
		}
		for i := 0; i < len(items); i += 2 {
			into.keys, into.values = append(into.keys, items[i]), append(into.values, items[i+1])
		}
	case *list:
		if op != 'a' && op != 'e' {
			return fmt.Errorf("pairs for a list")
		}
		into.items = append(into.items, items...)
	default:
		return fmt.Errorf("values for %s", kindOf(into))
	}
	return nil
}

// persistent pushes the storage that a tuple describes: ("storage", type, key, place, size).
func (m *machine) persistent() error {
	v, err := m.pop()
	if err != nil {
		return err
	}
	t, ok := v.(tuple)
	if !ok || len(t) < 3 || t[0] != "storage" {
		return fmt.Errorf("a reference that is not to a storage")
	}
	kind, isName := t[1].(name)
	key, isText := t[2].(string)
	element, known := storages[strings.TrimPrefix(string(kind), storagePrefix)]
	if !isName || !isText || !known {
		return fmt.Errorf("a storage of %v", t[1])
	}
	if len(t) > 5 && t[5] != nil {
		return fmt.Errorf("a part of a storage as a storage of its own")
	}
	s := storage{element, key}
	if old, twice := m.storages[key]; twice && old != s {
		return fmt.Errorf("the storage %.60q of both %v and %v", key, old.kind, element)
	}
	m.storages[key] = s
	m.push(s)
	return nil
}

// reduce makes what a call of a known function gives.
func (m *machine) reduce() error {
	args, err := m.pop()
	if err != nil {
		return err
	}
	f, err := m.pop()
	if err != nil {
		return err
	}
	t, ok := args.(tuple)
	if !ok {
		return fmt.Errorf("a call with %s for its arguments", kindOf(args))
	}
	switch f {
	case name(orderedDict):
		if len(t) != 0 {
			return fmt.Errorf("an OrderedDict made from %d values", len(t))
		}
		m.push(&dict{})
	case name(rebuildTensor):
		v, err := rebuild(t)
		if err != nil {
			return err
		}
		m.push(v)
	case name(rebuildParam), name(rebuildOldParam):
		v, ok := first(t).(tensor)
		if !ok {
			return fmt.Errorf("a parameter of %s", kindOf(first(t)))
		}
		m.push(v)
	case name(size):
		inner, ok := first(t).(tuple)
		if !ok {
			return fmt.Errorf("a size of %s", kindOf(first(t)))
		}
		m.push(inner)
	default:
		return fmt.Errorf("a call of %s", kindOf(f))
	}
	return nil
}

func first(t tuple) any {
	if len(t) == 0 {
		return nil
	}
	return t[0]
}

// rebuild makes a tensor: (storage, offset, sizes, strides, ...).
func rebuild(t tuple) (v tensor, err error) {
	if len(t) < 4 {
		return v, fmt.Errorf("a tensor of %d values", len(t))
	}
	var ok bool
	if v.storage, ok = t[0].(storage); !ok {
		return v, fmt.Errorf("a tensor in %s", kindOf(t[0]))
	}
	if v.offset, ok = t[1].(int64); !ok {
		return v, fmt.Errorf("a tensor at %s", kindOf(t[1]))
	}
	for i, to := range []*[]int64{(*[]int64)(&v.shape), &v.strides} {
		list, ok := t[2+i].(tuple)
		if !ok {
			return v, fmt.Errorf("a tensor with %s for its sizes", kindOf(t[2+i]))
		}
		for _, x := range list {
			n, ok := x.(int64)
			if !ok {
				return v, fmt.Errorf("a tensor with a size that is %s", kindOf(x))
			}
			*to = append(*to, n)
		}
	}
	return v, nil
}

// build sets attributes of an object. Of dictionaries they are what state_dict adds
// (_metadata), and are dropped.
func (m *machine) build() error {
	if _, err := m.pop(); err != nil {
		return err
	}
	on, err := m.top()
	if err != nil {
		return err
	}
	if _, ok := on.(*dict); !ok {
		return fmt.Errorf("attributes of %s", kindOf(on))
	}
	return nil
}
