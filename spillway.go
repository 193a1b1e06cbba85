// Package spillway trains and runs neural networks larger than the memory of the
// device they run on. It is the way in for programs: it joins the packages below
// and decides nothing itself.
//
// Wrap takes a model of one's own and runs it within the memory there is:
//
//	net, err := spillway.Wrap(model, spillway.Config{})
//	loss, err := net.Step(batch)     // one iteration of training
//	output, err := net.Forward(batch)
//	fmt.Println(net.Explain(), net.MemoryStats())
//
// With more in hand, a plan is looked at before it is carried out:
//
//	model, err := spillway.Open("path/to/folder") // or a published shape: "llama-3-8b"
//	job, err := model.Plan(spillway.PlanOptions{Task: spillway.Train, Rows: 4, Seq: 1024, Machine: here, On: devices})
//	fmt.Println(job.Plan.Strategy, job.Plan.Reason)
//	result, err := job.Train(ctx, feed, train.Config{Iterations: 1000})
//
// A Model is an architecture and a source of weights; a Job is a model with a
// verified plan, which says before anything is allocated where every byte will
// live.
package spillway

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
	"spillway/hf"
	"spillway/nn"
	"spillway/quant/stored"
	"spillway/spec"
	"spillway/weights"
)

// Model is a network and where its weights come from.
type Model struct {
	Name   string
	Info   arch.Info
	Folder *hf.Folder // that has the weights; nil where they are fresh
	// Seed of fresh weights.
	Seed uint64

	config []byte                   // config.json
	build  func() (nn.Model, error) // anew each time, since adapters change a model
}

// Open opens a model folder, a config.json, or a published shape by its name. The last
// two start from fresh weights. The caller closes the model.
func Open(name string) (*Model, error) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return openFolder(name)
	case err == nil:
		return openConfig(name)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("opening model %s: %w", name, err)
	}
	config, err := arch.Preset(name)
	if err != nil {
		return nil, fmt.Errorf("opening model %s: there is no such folder, and %w", name, err)
	}
	return fromConfig(name, config)
}

func openConfig(path string) (*Model, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := fromConfig(strings.TrimSuffix(filepath.Base(path), ".json"), raw)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return m, nil
}

func openFolder(dir string) (*Model, error) {
	folder, err := hf.Open(dir)
	if err != nil {
		return nil, err
	}
	config, err := folder.Config.Encode()
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	m, err := fromConfig(filepath.Base(filepath.Clean(dir)), config)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", dir, err), folder.Close())
	}
	m.Folder = folder
	return m, nil
}

func fromConfig(name string, config []byte) (*Model, error) {
	_, info, err := arch.FromConfig(config)
	return &Model{Name: name, Info: info, config: config, build: func() (nn.Model, error) {
		m, _, err := arch.FromConfig(config)
		return m, err
	}}, err
}

// custom is the model_type of models that are Go code.
const custom = "custom"

// Define makes a model of one's own Go structs. Build is called for every plan,
// since adapters change what they are attached to. The weights are fresh.
func Define(name string, build func() (nn.Model, error)) *Model {
	return &Model{Name: name, Info: arch.Info{Type: custom}, config: []byte(`{"model_type": "` + custom + `"}`), build: build}
}

// weights is where the params of a traced model come from: the folder, and fresh
// ones for adapters that it does not have.
func (m *Model) weights(params []spec.Param, adapter func(param string) bool) (weights.Values, error) {
	from, err := m.plainWeights(params, adapter)
	if err != nil {
		return nil, err
	}
	lengths := map[string]bool{}
	for _, p := range params {
		lengths[p.Name] = weights.IsMagnitude(p)
	}
	return weights.Join(func(param string) bool { return lengths[param] }, weights.Magnitudes(params, from), from), nil
}

// plainWeights is weights for all but what starts as the lengths of others.
func (m *Model) plainWeights(params []spec.Param, adapter func(param string) bool) (weights.Values, error) {
	fresh, err := weights.Random(params, m.Seed)
	if err != nil {
		return nil, err
	}
	if m.Folder == nil {
		return m.untrained(params, fresh)
	}
	if err := m.Folder.NeedWeights(); err != nil {
		return nil, fmt.Errorf("%w; or open its %s to start from fresh weights", err, hf.ConfigName)
	}
	if err := stored.Check(m.Folder.Config); err != nil {
		return nil, fmt.Errorf("opening %s: %w", m.Folder.Dir, err)
	}
	missing := func(param string) bool {
		return adapter(param) && !slices.ContainsFunc(m.Info.FileNames(param), func(name string) bool {
			_, held := m.Folder.Tensor(name)
			return held
		})
	}
	held, err := weights.FromSource(m.Folder, m.Info, slices.DeleteFunc(slices.Clone(params), func(p spec.Param) bool { return missing(p.Name) }))
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", m.Folder.Dir, err)
	}
	return weights.Join(missing, fresh, held), nil
}

// untrained is the weights of a model of no folder. What is packed in it is never
// trained, so any numbers will do that are quickly made.
func (m *Model) untrained(params []spec.Param, fresh weights.Values) (weights.Values, error) {
	packed := map[string]bool{}
	var list []spec.Param
	for _, p := range params {
		if packed[p.Name] = p.Type.DType.Block(); packed[p.Name] {
			list = append(list, p)
		}
	}
	quick, err := weights.Noise(list, m.Seed)
	if err != nil {
		return nil, err
	}
	return weights.Join(func(param string) bool { return packed[param] }, quick, fresh), nil
}

// files are what a folder of the model has besides weights, which are to be of the
// given type.
func (m *Model) files(t dtype.Type) (hf.Model, error) {
	config, err := hf.ParseConfig(m.config)
	if err != nil {
		return hf.Model{}, err
	}
	config.Type = t
	files := hf.Model{Config: config}
	if m.Folder != nil {
		files.Generation, files.Files = m.Folder.Generation, m.Folder.TokenizerPaths()
	}
	return files, nil
}

// Close closes the folder.
func (m *Model) Close() error {
	if m.Folder == nil {
		return nil
	}
	return m.Folder.Close()
}
