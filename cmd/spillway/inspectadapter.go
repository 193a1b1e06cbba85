package main

import (
	"fmt"
	"strings"

	"spillway/hf"
	"spillway/lora"
)

// adapterReport is what an adapter's folder says of it.
type adapterReport struct {
	Base    string   `json:"base,omitempty"` // the model it was made for
	Rank    int      `json:"rank"`
	Alpha   float64  `json:"alpha"`
	Targets string   `json:"targets"`
	Special []string `json:"special,omitempty"` // what is unusual about it
	Params  int64    `json:"params"`
}

// inspectAdapter reads an adapter's folder, which a checkpoint may be.
func inspectAdapter(dir string, listTensors, verify bool) (*folderReport, error) {
	f, err := hf.OpenAdapter(dir)
	if err != nil {
		return nil, fmt.Errorf("inspecting %s: %w", dir, err)
	}
	defer f.Close() // opened for reading
	c := f.Config
	r := &folderReport{Path: dir, Types: []typeReport{}, Files: []fileReport{}, Problems: []string{},
		Adapter: &adapterReport{Base: c.BaseModel, Rank: c.Rank, Alpha: c.Alpha, Targets: c.Targets.Pattern}}
	if r.Config, err = c.Encode(); err != nil {
		return nil, fmt.Errorf("inspecting %s: %w", dir, err)
	}
	if len(c.Targets.Names) > 0 {
		r.Adapter.Targets = strings.Join(c.Targets.Names, ", ")
	}
	for _, t := range f.Tensors() {
		r.count(t, listTensors)
		r.Adapter.Params += t.Shape.Elements()
	}
	if o, err := lora.FromPEFT(c); err != nil {
		r.problem("%v", err)
	} else {
		r.Adapter.Special = adapterTraits(o)
	}
	r.inspectCheckpoint(verify)
	return r, nil
}

// String is the adapter in a line.
func (a *adapterReport) String() string {
	text := strings.Join(append([]string{fmt.Sprintf("rank %d, alpha %v, of %s", a.Rank, a.Alpha, a.Targets)}, a.Special...), ", ")
	if a.Base != "" {
		text += "; for " + a.Base
	}
	return text
}
