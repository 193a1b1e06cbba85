package optim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// min8BitSize is how many elements a param must have for states in 8 bits, as
// in bitsandbytes.
const min8BitSize = 4096

// StatesFor makes the function that lists the states of a param, in the order in which the
// update takes them, in the types that Storage, Codecs, Min8BitSize and StateExceptions
// say. All start at zero.
func (c Config) StatesFor(l Layers) (func(param string, s shape.Shape) []op.State, error) {
	r, err := find(c.Name)
	if err != nil {
		return nil, err
	}
	exceptions, err := c.exceptions(l)
	if err != nil {
		return nil, err
	}
	codecs, err := parseCodecs(c.Codecs)
	if err != nil {
		return nil, err
	}
	names := r.States(c)
	return func(param string, s shape.Shape) []op.State {
		list := make([]op.State, len(names))
		for i, name := range names {
			t := c.stateType(exceptions, param, cmp.Or(codecs[name], c.Storage), s.Elements())
			list[i] = op.State{Name: name, Type: op.Type{DType: r.stored(i, t), Shape: s}}
		}
		if r.OtherStates != nil {
			list = append(list, r.OtherStates(param, s, l)...)
		}
		return list
	}, nil
}

// stateType is the type of the states of a param, where t is that of others.
func (c Config) stateType(exceptions []exception, param string, t dtype.Type, elements int64) dtype.Type {
	if i := slices.IndexFunc(exceptions, func(e exception) bool { return e.of.covers(param) }); i >= 0 {
		t = exceptions[i].storage
	}
	if t == dtype.Invalid || t.Block() && elements < int64(cmp.Or(c.Min8BitSize, min8BitSize)) {
		return dtype.F32
	}
	return t
}

// stateNames lists the states of all optimizers that may be in 16 or 8 bits.
func stateNames() (names []string) {
	for _, u := range updates {
		for _, s := range u.States {
			names = append(names, s.Name)
		}
	}
	for _, r := range rules { // several rules may share an update, and name its states otherwise
		if updates[r.Kind] != nil {
			names = append(names, r.States(r.defaults())...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// parseCodecs reads "exp_avg:8bit;exp_avg_sq:fp16".
func parseCodecs(text string) (map[string]dtype.Type, error) {
	of := map[string]dtype.Type{}
	for item := range strings.SplitSeq(text, ";") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, storage, _ := strings.Cut(item, ":")
		if !slices.Contains(stateNames(), name) {
			return nil, fmt.Errorf("codecs %q: there is no state %q; there are %s", text, name, strings.Join(stateNames(), ", "))
		}
		t, err := parseStorage(storage)
		if err != nil {
			return nil, fmt.Errorf("codecs %q: %w", text, err)
		}
		of[name] = t
	}
	return of, nil
}

// stored is the type that state i has where t is asked for: some codes are with or without a sign.
func (r *Rule) stored(i int, t dtype.Type) dtype.Type {
	if u := updates[r.Kind]; u != nil && i < len(u.States) {
		return u.States[i].stored(t)
	}
	return t
}

// StoredAs is the type that a state has where t is asked for: 8-bit codes of what is never negative have
// no sign. An error where it cannot be stored so.
func (c Config) StoredAs(state string, t dtype.Type) (dtype.Type, error) {
	r, err := find(c.Name)
	if err != nil {
		return t, err
	}
	i := slices.Index(r.States(c), state)
	known := t.IsPlain() || quant.Of(t) != nil && slices.ContainsFunc(quant.States(), func(q *quant.Codec) bool { return q.Type == t })
	if i < 0 || !known || r.No8Bit && t.Block() {
		return t, fmt.Errorf("optimizer %s: state %s cannot be stored in %v; states can in %s", c.Name, state, t, storageNames())
	}
	return r.stored(i, t), nil
}

// exception is an item of StatesOf.
type exception struct {
	of      pattern
	storage dtype.Type
}

func (c Config) exceptions(l Layers) (list []exception, err error) {
	for item := range strings.SplitSeq(c.StateExceptions, ";") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		at := strings.LastIndex(item, ":")
		if at < 0 {
			return nil, fmt.Errorf("optimizer %s: states_of %q; write it like embeddings:f32;lm_head:bf16", c.Name, item)
		}
		e := exception{}
		if e.storage, err = parseStorage(item[at+1:]); err == nil {
			e.of, err = paramPattern(item[:at], l)
		}
		if err != nil {
			return nil, fmt.Errorf("optimizer %s: states_of %q: %w", c.Name, item, err)
		}
		list = append(list, e)
	}
	return list, nil
}

// storage is a type that states may have, and how names of optimizers with it end.
type storage struct {
	name string
	t    dtype.Type
}

// storages lists them, those of codecs first.
func storages() (list []storage) {
	for _, c := range quant.States() {
		list = append(list, storage{c.Alias, c.Type})
	}
	return append(list, []storage{{"bf16", dtype.BF16}, {"fp16", dtype.F16}, {"f16", dtype.F16}, {"32bit", dtype.F32}, {"fp32", dtype.F32}, {"f32", dtype.F32}}...)
}

// storageNames lists the types of states as people write them: "f32, bf16, fp16 and 8bit".
func storageNames() string {
	names := "f32, bf16, fp16"
	for _, c := range quant.States() {
		names += " and " + c.Alias
	}
	return names
}

// StorageEndings lists how names of optimizers end by the type of their states: "_8bit, _bf16
// or _fp16".
func StorageEndings() (text string) {
	for _, c := range quant.States() {
		text += "_" + c.Alias + ", "
	}
	return text + "_bf16 or _fp16"
}

func parseStorage(text string) (dtype.Type, error) {
	for _, s := range storages() {
		if strings.TrimSpace(text) == s.name {
			return s.t, nil
		}
	}
	return dtype.Invalid, fmt.Errorf("states cannot be stored in %q; they can in %s", text, storageNames())
}

// storageName is how the name of an optimizer ends: "" for f32.
func (c Config) storageName() string {
	for _, s := range storages() {
		if s.t == c.Storage && s.t != dtype.F32 {
			return "_" + s.name
		}
	}
	return ""
}

// checkStates refuses storage that states cannot have.
func (c Config) checkStates(r *Rule) error {
	if c.Storage != dtype.Invalid && c.Storage != dtype.F32 && c.storageName() == "" {
		return fmt.Errorf("optimizer %s: states cannot be stored in %v; they can in %s", c.Name, c.Storage, storageNames())
	}
	if r.No8Bit && c.Storage.Block() {
		return fmt.Errorf("optimizer %s: its state is small and stays f32, its mean can be bf16 or fp16; leave %s out", c.Name, quant.Of(c.Storage).Alias)
	}
	if c.Min8BitSize < 0 {
		return fmt.Errorf("optimizer %s: min_8bit_size is %d; it is a number of elements", c.Name, c.Min8BitSize)
	}
	if _, err := parseCodecs(c.Codecs); err != nil {
		return fmt.Errorf("optimizer %s: %w", c.Name, err)
	}
	_, err := c.exceptions(nil)
	return err
}
