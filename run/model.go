package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spillway/arch"
	"spillway/dtype"
	"spillway/gguf"
	"spillway/graph"
	"spillway/hf"
	"spillway/hub"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/nn"
	"spillway/optim"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/spec"
	"spillway/tensorfile"
	"spillway/units"
	"spillway/weights"
)

// Model is a network and the source of its weights.
type Model struct {
	Name   string
	Origin string // what it was opened by: a path, or a name of the hub or of Ollama's store; "" for models that are Go code
	Info   arch.Info
	Folder *hf.Folder // that has the weights; nil where they are random
	Seed   uint64     // of random initial weights

	config []byte                   // config.json
	build  func() (nn.Model, error) // makes a new network each time, since adapters change it
	values weights.Values           // of all params, instead of the folder's or random ones; nil for none
	shared bool                     // its weights are read and written between passes, as plain numbers
}

// Open opens a model folder, a GGUF file, a model of the hub's cache by its name, "org/name",
// a config.json, or a preset by its name. The last two start from random weights. The caller closes the model.
func Open(name string) (m *Model, err error) {
	path, err := hub.Path(name)
	if err != nil {
		hint := arch.PresetHint(name)
		if strings.HasPrefix(name, hub.OllamaPrefix) { // which is no preset
			hint = ""
		}
		return nil, fmt.Errorf("opening model %w%s", err, hint)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		config, err := arch.Preset(name)
		if err != nil {
			return nil, fmt.Errorf("opening model %s: %w", name, err)
		}
		return fromConfig(name, config)
	case err != nil:
		return nil, fmt.Errorf("opening model %s: %w", name, err)
	case !info.IsDir() && !gguf.IsFile(vfs.OS, path) && !hf.IsWeightsFile(vfs.OS, path):
		config, err := vfs.ReadFile(vfs.OS, name, maxConfig)
		if err != nil {
			return nil, err
		}
		if m, err = fromConfig(strings.TrimSuffix(filepath.Base(name), ".json"), config); err != nil {
			return nil, fmt.Errorf("opening %s: %w", name, err)
		}
		return m, nil
	}
	folder, err := hf.Open(path)
	if err != nil {
		return nil, err
	}
	config, err := folder.Config.Encode()
	if err == nil {
		m, err = fromConfig(strings.TrimSuffix(filepath.Base(filepath.Clean(name)), gguf.Extension), config)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", name, err), folder.Close())
	}
	m.Folder, m.Origin = folder, name
	return m, nil
}

// OfSize is a model of which only the size of its weights in 16 bits is known: Llama's shape with
// as many params. The weights are random.
func OfSize(weights units.Bytes) (*Model, error) {
	config, err := arch.OfSize(int64(weights) / 2)
	if err != nil {
		return nil, err
	}
	return fromConfig(fmt.Sprintf("model of %v", weights), config)
}

func fromConfig(name string, config []byte) (*Model, error) {
	_, info, err := arch.FromConfig(config)
	return &Model{Name: name, Info: info, config: config, build: func() (nn.Model, error) {
		m, _, err := arch.FromConfig(config)
		return m, err
	}}, err
}

// maxConfig bounds a config.json, in bytes.
const maxConfig = 16 << 20

// custom is the model_type of models that are Go code.
const custom = "custom"

// Define makes a model of one's own Go structs. Build is called for every plan, since
// adapters change what they are attached to. The weights are random.
func Define(name string, build func() (nn.Model, error)) *Model {
	return &Model{Name: name, Info: arch.Info{Type: custom, Buffers: []string{".num_batches_tracked"}}, config: []byte(`{"model_type": "` + custom + `"}`), build: build}
}

// Close closes the folder.
func (m *Model) Close() error {
	if m.Folder == nil {
		return nil
	}
	return m.Folder.Close()
}

// WithValues is the same model with its weights from v, for whoever reads and writes them between
// passes. In place: the weights of its folder are the same, and may be read where they are.
func (m *Model) WithValues(v weights.Values, inPlace bool) *Model {
	own := *m
	if own.values, own.shared = v, true; !inPlace {
		own.Folder = nil
	}
	return &own
}

// WithNetwork is the same model of a network that is built already.
func (m *Model) WithNetwork(net nn.Model) *Model {
	own := *m
	own.build = func() (nn.Model, error) { return net, nil }
	return &own
}

// Build makes the network.
func (m *Model) Build() (nn.Model, error) { return m.build() }

// Trace traces the model for a task and some sizes of a micro-batch, as options say.
func (m *Model) Trace(o Options, microBatchSize, seq int64) (*spec.Model, error) {
	net, err := m.network(o)
	if err != nil {
		return nil, err
	}
	return m.trace(net, o, microBatchSize, seq)
}

func (m *Model) trace(net nn.Model, o Options, microBatchSize, seq int64) (*spec.Model, error) {
	task, err := o.Task.graph()
	if err != nil {
		return nil, err
	}
	c := graph.Config{MicroBatchSize: microBatchSize, Seq: seq, DType: o.Precision, Task: task, Packed: o.Packed, Document: o.Document, Outputs: o.Outputs && task == graph.Train, Centralize: o.Centralize && task == graph.Train}
	if o.Task == Infer && !o.AllLogits {
		c.LogitsOf = 1
	}
	if o.Task == Generate {
		c.Cache = o.Generation.cache(seq)
	}
	return spec.Trace(m.Name, m.Info.Type, net, c)
}

// network builds the model, with adapters where the task wants them, quantized where the options
// say so, and with their exceptions.
func (m *Model) network(o Options) (nn.Model, error) {
	net, err := m.build()
	if err == nil && o.adapts() {
		_, err = lora.Attach(net, o.Adapters)
	} else if err == nil && o.quantizes() {
		err = lora.Quantize(net, o.Adapters.Base, o.Adapters.Outliers)
	}
	if err == nil {
		err = m.asStored(net, o)
	}
	if err == nil {
		err = hasOutliers(net, o)
	}
	if err != nil {
		return nil, err
	}
	if err := freeze(net, o); err != nil {
		return nil, err
	}
	for _, x := range o.Exceptions {
		t := x.Type
		if t == dtype.Invalid {
			t = o.Precision
		}
		if t != dtype.F32 && t != o.Precision {
			return nil, fmt.Errorf("modules %s in %v: they can be f32, or %v like the rest", strings.Join(x.Modules, ", "), t, o.Precision)
		}
		set, err := nn.NewModuleSet(x.Modules)
		if err != nil {
			return nil, err
		}
		if _, err = nn.Except(net, set.Has, t); err == nil {
			err = set.Unmatched()
		}
		if err != nil {
			what := fmt.Sprintf("in %v", t)
			if x.Type == dtype.Invalid {
				what = "that stay as they are"
			}
			return nil, fmt.Errorf("modules %s: %w", what, err)
		}
	}
	if o.interleaved {
		err = interleaveLinears(net, o.Precision, m.Folder == nil)
	}
	return net, errors.Join(err, o.holdCompressed(net))
}

// freeze marks the params that the options freeze. A network that several plans share has marks of
// an earlier one, which come off again.
func freeze(net nn.Model, o Options) error {
	params, err := nn.Bind(net)
	if err != nil {
		return err
	}
	layers := layersOf(net)
	frozen, err := optim.Matches(o.Freeze, layers)
	if err != nil {
		return fmt.Errorf("frozen params: %w", err)
	}
	var trained []*nn.Param
	for _, p := range params {
		if p.Paused = frozen(p.Name); !p.Frozen {
			trained = append(trained, p)
		}
	}
	for _, pattern := range o.Freeze { // each freezes something, or it is a slip
		one, err := optim.Matches([]string{pattern}, layers)
		if err != nil {
			return fmt.Errorf("frozen params: %w", err)
		}
		if len(trained) > 0 && !slices.ContainsFunc(trained, func(p *nn.Param) bool { return one(p.Name) }) {
			return fmt.Errorf("frozen params %s: none of the %d params that would be trained matches; the first is %s", pattern, len(trained), trained[0].Name)
		}
	}
	trained = slices.DeleteFunc(trained, func(p *nn.Param) bool { return p.Paused })
	if len(trained) == 0 && len(o.Freeze) > 0 {
		return fmt.Errorf("frozen params %s: nothing is left to train; leave some out", strings.Join(o.Freeze, ", "))
	}
	return checkGroups(trained, o.Groups, layers)
}

// layersOf says which params of a network are in norms and embeddings.
func layersOf(net nn.Model) optim.Layers {
	l := optim.Layers{}
	for _, p := range nn.NormParams(net) {
		l[p.Name] = optim.Norms
	}
	for _, p := range nn.EmbeddingParams(net) {
		l[p.Name] = optim.Embeddings
	}
	return l
}

// checkGroups refuses a group that no trained param is in.
func checkGroups(trained []*nn.Param, groups []optim.Group, layers optim.Layers) error {
	groupOf, err := optim.GroupOf(groups, layers)
	if err != nil || len(trained) == 0 {
		return err
	}
	in := make([]int, len(groups)+1)
	for _, p := range trained {
		in[groupOf(p.Name)]++
	}
	for i, g := range groups {
		if in[i+1] == 0 {
			return fmt.Errorf("group %s: none of the %d params that are trained is in it, or an earlier group has them; the first param is %s", strings.Join(g.Params, ", "), len(trained), trained[0].Name)
		}
	}
	return nil
}

// asStored makes the weights of a quantized folder be held as the folder has them: those
// that it left plain stay so, and those that it has in codes are not encoded again, which
// would change their numbers. Only to compute with, linear layers hold codes without being
// asked to.
func (m *Model) asStored(net nn.Model, o Options) error {
	if m.Folder == nil {
		return nil
	}
	tensors := m.Folder.Tensors()
	if !stored.Quantized(m.Folder.Config) && !slices.ContainsFunc(tensors, func(t tensorfile.Tensor) bool { return t.Type.Block() }) {
		return nil
	}
	params, err := nn.Bind(net)
	if err != nil {
		return err
	}
	list, _ := stored.Collect(tensors) // what is wrong with them is reported when they are read
	byName := map[string]stored.Tensor{}
	for _, w := range list {
		byName[w.Name] = w
	}
	if !o.Task.Trains() && !o.adapts() {
		if err := m.packLinears(net, byName, o); err != nil {
			return err
		}
	}
	for _, p := range params {
		for _, name := range m.Info.FileNames(p.Name) {
			w, held := byName[name]
			if !held || !p.Storage.Block() {
				continue
			}
			if !w.Type.Block() {
				p.Storage, p.OutlierThreshold = dtype.Invalid, 0
				continue
			}
			if quant.InterleavedOf(p.Storage) == w.Type {
				continue
			}
			if stored.Library(w.Type) == "" && stored.Library(p.Storage) == "" { // a file may mix such types
				p.Storage = w.Type
			}
			if _, _, ok := w.Storage(); p.Storage != w.Type || !ok {
				return fmt.Errorf("%s has %s in %v%s; held as %v its numbers would be others: train with --method lora, which decodes them as they are, or quantize the original weights anew",
					m.Folder.Dir, w.Name, w.Type, w.Format(), p.Storage)
			}
		}
	}
	return nil
}

// packLinears has the weights of linear layers held in the codes that the folder has them in,
// where those are stored as they are held. A weight that is the embedding too is read row
// by row, and stays plain; so do the types of GGUF files where those are decoded.
func (m *Model) packLinears(net nn.Model, byName map[string]stored.Tensor, o Options) error {
	linears, err := onlyLinears(net)
	for _, p := range linears {
		for _, name := range m.Info.FileNames(p.Name) {
			w, held := byName[name]
			if !held || !w.Type.Block() {
				continue
			}
			_, exact, ok := w.Storage()
			if kind, fits := quant.Interleaved(w.Type, w.Shape.Rows(), w.Shape.Last()); o.interleaved && fits && exact && ok {
				p.Storage, p.Frozen = kind, true
				continue
			}
			if decoded := o.decoded && stored.Library(w.Type) == ""; exact && ok && !decoded {
				p.Storage, p.Frozen = w.Type, true
			}
			if p.Storage == quant.RowI8 {
				p.OutlierThreshold = o.Adapters.Outliers
			}
		}
	}
	return err
}

// hasOutliers refuses a threshold of outliers where no weight is multiplied as LLM.int8 does.
func hasOutliers(net nn.Model, o Options) error {
	if o.Adapters.Outliers == 0 || o.Task.Trains() {
		return nil
	}
	params, err := nn.Bind(net)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(params, func(p *nn.Param) bool { return p.OutlierThreshold > 0 }) {
		return fmt.Errorf("a threshold of %v for LLM.int8 has no effect: the model has no weights in int8; leave it out, or make a folder with spillway quantize MODEL OUT --format int8", o.Adapters.Outliers)
	}
	return nil
}

// QuantizedType is the format of QLoRA's frozen weights where none is given: the
// folder's own, or NF4. isStored says that the folder has it.
func (m *Model) QuantizedType() (t dtype.Type, isStored bool) {
	if m.Folder != nil {
		list, _ := stored.Collect(m.Folder.Tensors()) // what is wrong with them is reported when they are read
		for _, w := range list {
			if w.Type.Block() {
				return w.Type, true
			}
		}
	}
	return quant.NF4, false
}

// Values is where the params of a traced model come from: the folder, and random ones
// for those that are new to it, as adapters are.
func (m *Model) Values(params []spec.Param, isNew func(param string) bool) (weights.Values, error) {
	if m.values != nil {
		return m.values, nil
	}
	from, err := m.ownValues(params, isNew)
	if err != nil {
		return nil, err
	}
	isMagnitude, _ := named(params, weights.IsMagnitude)
	return weights.Join(isMagnitude, weights.Magnitudes(params, from), from), nil
}

// ownValues is Values for all params but magnitudes, which follow from the others. In a
// model without a folder quantized ones are never trained, so noise that is quickly made
// will do for them.
func (m *Model) ownValues(params []spec.Param, isNew func(param string) bool) (weights.Values, error) {
	random, err := weights.Random(params, m.Seed)
	if err != nil {
		return nil, err
	}
	if m.Folder == nil {
		quantized, list := named(params, func(p spec.Param) bool {
			return p.Type.DType.Block() && !quant.InterleavedOf(p.Type.DType).IsPlain()
		})
		noise, err := weights.Noise(list, m.Seed)
		if err != nil {
			return nil, err
		}
		return weights.Join(quantized, noise, random), nil
	}
	if err := m.Folder.NeedWeights(); err != nil {
		return nil, fmt.Errorf("%w; or open its %s to start from random weights", err, hf.ConfigName)
	}
	if err := errors.Join(stored.Check(m.Folder.Config), stored.CheckActivations(m.Folder.Config)); err != nil {
		return nil, fmt.Errorf("opening %s: %w", m.Folder.Path, err)
	}
	missing, _ := named(params, func(p spec.Param) bool {
		return isNew(p.Name) && !slices.ContainsFunc(m.Info.FileNames(p.Name), func(name string) bool {
			_, held := m.Folder.Tensor(name)
			return held
		})
	})
	held, err := weights.FromSource(m.Folder, m.Info, slices.DeleteFunc(slices.Clone(params), func(p spec.Param) bool { return missing(p.Name) }))
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", m.Folder.Path, err)
	}
	return weights.Join(missing, random, held), nil
}

// named lists some of the params, and says of a name whether it is one of theirs.
func named(params []spec.Param, some func(spec.Param) bool) (has func(param string) bool, list []spec.Param) {
	names := map[string]bool{}
	for _, p := range params {
		if some(p) {
			names[p.Name], list = true, append(list, p)
		}
	}
	return func(param string) bool { return names[param] }, list
}

// Config is the model's config.json.
func (m *Model) Config() (*hf.Config, error) { return hf.ParseConfig(m.config) }

// Files is what a folder of the model has next to its weights, which are to be of the
// given type.
func (m *Model) Files(t dtype.Type) (hf.Model, error) {
	config, err := m.Config()
	if err != nil {
		return hf.Model{}, err
	}
	if stored.Quantized(config) {
		config = stored.Unquantized(config) // what is written is plain
	}
	config.Type = t
	files := hf.Model{Config: config}
	if m.Folder != nil {
		files.Generation, files.Files = m.Folder.Generation, m.Folder.TokenizerPaths()
	}
	return files, nil
}
