package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"spillway/internal/vfs"
	"spillway/safetensors"
	"spillway/tensorfile"
)

// Names of files in an adapter's folder.
const (
	AdapterConfigName  = "adapter_config.json"
	AdapterWeightsName = adapterStem + ".safetensors"

	adapterStem = "adapter_model"
)

// adapterPrefix begins every name in an adapter's file, because PEFT wraps a model
// twice.
const adapterPrefix = "base_model.model."

// AdapterFolder is an open folder of a PEFT adapter.
type AdapterFolder struct {
	Dir    string
	Config *AdapterConfig
	file   tensorfile.Source
}

// IsAdapter says whether a folder is an adapter's.
func IsAdapter(dir string) bool {
	there, err := vfs.Exists(vfs.OS, filepath.Join(dir, AdapterConfigName))
	return err == nil && there
}

// OpenAdapter opens an adapter's folder. The caller closes it.
func OpenAdapter(dir string) (*AdapterFolder, error) { return OpenAdapterOn(vfs.OS, dir) }

// OpenAdapterOn is OpenAdapter on a given disk.
func OpenAdapterOn(disk vfs.FS, dir string) (*AdapterFolder, error) {
	if err := vfs.CheckFinished(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, AdapterConfigName)
	raw, err := vfs.ReadFile(disk, path, maxJSON)
	if whole, asking := vfs.Exists(disk, filepath.Join(dir, ConfigName)); errors.Is(err, fs.ErrNotExist) && asking == nil && whole {
		return nil, fmt.Errorf("%s is a whole model, as training all weights gives it, not an adapter: use it as the model; there is nothing to add to another", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not an adapter's folder: %w", dir, err)
	}
	f := &AdapterFolder{Dir: dir}
	if f.Config, err = ParseAdapterConfig(raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.file, err = tensorfile.OpenStem(disk, dir, adapterStem)
	if errors.Is(err, tensorfile.ErrNoWeights) {
		return nil, fmt.Errorf("%s has no %s; weights in adapter_model.bin can hold programs and are never loaded: save the adapter again with a recent PEFT", dir, AdapterWeightsName)
	}
	if err != nil {
		return nil, err
	}
	return f, f.checkNames()
}

func (f *AdapterFolder) checkNames() error {
	for _, t := range f.file.Tensors() {
		if !strings.HasPrefix(t.Name, adapterPrefix) {
			return errors.Join(fmt.Errorf("tensor %q of %s does not begin with %s", t.Name, t.Path, adapterPrefix), f.Close())
		}
	}
	return nil
}

// Tensors lists the adapter's tensors in file order, with the names of the model's
// params: "model.layers.0.self_attn.q_proj.lora_A.weight".
func (f *AdapterFolder) Tensors() []tensorfile.Tensor {
	all := f.file.Tensors()
	for i := range all {
		all[i].Name = strings.Replace(strings.TrimPrefix(all[i].Name, adapterPrefix), baseLayerInfix, ".", 1)
	}
	return all
}

// baseLayerInfix is part of the names of the biases of modules that have an adapter.
const baseLayerInfix = ".base_layer."

// fileNames returns the names that params have in an adapter's file.
func fileNames(tensors []tensorfile.Output) []string {
	adapted := map[string]bool{}
	for _, t := range tensors {
		if module, _, ok := strings.Cut(t.Name, ".lora_"); ok {
			adapted[module] = true
		}
	}
	names := make([]string, len(tensors))
	for i, t := range tensors {
		names[i] = adapterPrefix + t.Name
		if module, ok := strings.CutSuffix(t.Name, ".bias"); ok && adapted[module] {
			names[i] = adapterPrefix + module + baseLayerInfix + "bias"
		}
	}
	return names
}

// Tensor finds a tensor by the name of the model's param.
func (f *AdapterFolder) Tensor(name string) (tensorfile.Tensor, bool) {
	for _, t := range f.Tensors() {
		if t.Name == name {
			return t, true
		}
	}
	return tensorfile.Tensor{}, false
}

// Close closes the weights.
func (f *AdapterFolder) Close() error { return f.file.Close() }

// Adapter is what Write makes an adapter's folder of. Tensors have the names of the
// model's params.
type Adapter struct {
	Config  *AdapterConfig
	Tensors []tensorfile.Output
}

// Write makes a folder, complete or not at all. A folder of that name must not exist.
func (a Adapter) Write(dir string) error { return a.WriteOn(vfs.OS, dir) }

// WriteOn is Write on a given disk.
func (a Adapter) WriteOn(disk vfs.FS, dir string) error {
	return publish(disk, dir, a.Bytes, func(partial string) error { return a.Fill(disk, partial) })
}

// Bytes returns the size of all tensors in bytes.
func (a Adapter) Bytes() (int64, error) { return totalBytes(a.Tensors) }

// Fill writes the files into an existing folder and makes each durable. It is not
// atomic: callers put it inside vfs.Publish.
func (a Adapter) Fill(disk vfs.FS, dir string) error {
	config, err := a.Config.Encode()
	if err != nil {
		return fmt.Errorf("%s: %w", AdapterConfigName, err)
	}
	if err := writeBytes(disk, filepath.Join(dir, AdapterConfigName), config); err != nil {
		return err
	}
	tensors := make([]tensorfile.Output, len(a.Tensors))
	for i, name := range fileNames(a.Tensors) {
		tensors[i] = a.Tensors[i]
		tensors[i].Name = name
	}
	return safetensors.WriteFile(disk, filepath.Join(dir, AdapterWeightsName), tensors)
}
