package inspect

import (
	"fmt"
	"strings"

	"spillway/arch"
	"spillway/hf"
	"spillway/lora"
)

// Adapter is what an adapter's folder says of it.
type Adapter struct {
	Base    string   `json:"base,omitempty"` // the model it was made for
	Rank    int      `json:"rank"`
	Alpha   float64  `json:"alpha"`
	Targets string   `json:"targets"`
	Special []string `json:"special,omitempty"` // what is unusual about it
	Params  int64    `json:"params"`
}

// adapterFolder reads an adapter's folder, which a checkpoint may be.
func adapterFolder(dir string, o Options) (*Report, error) {
	f, err := hf.OpenAdapter(dir)
	if err != nil {
		return nil, fmt.Errorf("inspecting %s: %w", dir, err)
	}
	defer f.Close() // opened for reading
	c := f.Config
	r := &Report{Path: dir, Types: []Type{}, Files: []File{}, Problems: []string{},
		Adapter: &Adapter{Base: c.Base(), Rank: c.Rank, Alpha: c.Alpha, Targets: c.Targets.Pattern}}
	if r.Config, err = c.Encode(); err != nil {
		return nil, fmt.Errorf("inspecting %s: %w", dir, err)
	}
	if len(c.Targets.Names) > 0 {
		r.Adapter.Targets = strings.Join(c.Targets.Names, ", ")
	}
	for _, t := range f.Tensors() {
		r.count(t, o.Tensors)
		r.Adapter.Params += t.Shape.Elements()
	}
	if a, err := lora.Open(dir); err != nil {
		r.problem("%v", err)
	} else {
		defer a.Close() // opened for reading
		r.Adapter.Special = a.Options.Traits()
		r.compareBase(a)
	}
	r.inspectCheckpoint(o.Verify)
	return r, nil
}

// compareBase compares an adapter with the model it was made for, where that is a folder
// that can be read.
func (r *Report) compareBase(a *lora.Adapter) {
	base, err := hf.Open(a.Base)
	if a.Base == "" || err != nil {
		return
	}
	defer base.Close() // opened for reading
	net, _, err := arch.New(base.Config)
	if err == nil {
		_, err = a.AttachTo(net)
	}
	if err != nil {
		r.problem("%v", err)
	}
}
