package inference

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"spillway"
	"spillway/dtype"
	"spillway/quant"
	"spillway/rig"
	"spillway/run"
	"spillway/units"
	"spillway/view"
)

// Replan makes the plan that a run which generates texts would have with another limit of device memory,
// on the machine that its event log describes. No device is opened, no weight is loaded, and the run
// goes on as it is. A limit that is too small is a planner.FitError.
func Replan(dir string, memory int64) (*spillway.Run, error) {
	recorded, err := view.Open(dir)
	if err != nil {
		return nil, err
	}
	defer recorded.Close() // opened for reading
	was, err := recorded.Plan()
	if err != nil {
		return nil, err
	}
	if was == nil || was.Cache == nil {
		return nil, fmt.Errorf("the event log in %s has no plan to generate yet", dir)
	}
	on, err := recorded.On()
	if err != nil {
		return nil, err
	}
	given := map[string]string{}
	for _, s := range recorded.Settings {
		given[s.Name] = s.Value
	}
	s, err := settingsOf(given)
	if err != nil {
		return nil, fmt.Errorf("planning the run in %s again: %w", dir, err)
	}
	c := was.Cache
	s.MaxMemory = fmt.Sprintf("%dB", memory)
	m, err := Open(s)
	if err != nil {
		return nil, fmt.Errorf("planning the run in %s again: %w", dir, err)
	}
	defer m.Close() // opened for reading
	if s.Disk == "" {
		on.Disk.Free = 0 // the run was given no folder on it
	}
	o := spillway.Options{Task: spillway.Generate, Generation: run.GenerationOf(c)}
	return m.Plan(m.options(o, &rig.Rig{Machine: on}))
}

// settingsOf are what a recorded run opened, by the flags it was given.
func settingsOf(given map[string]string) (s Settings, err error) {
	if name := given["draft"]; name != "" && name != DraftLookup {
		return s, fmt.Errorf("it has the memory that a second model leaves, which guesses for it (--draft %s); spillway plan --task generate plans one model", name)
	}
	s.Model, s.Disk = given["model"], given["disk"]
	if s.Model == "" {
		return s, fmt.Errorf("its event log does not name the model")
	}
	if text := given["dtype"]; text != "" {
		if s.Precision, err = dtype.ParsePlain(text); err != nil {
			return s, err
		}
	}
	if text := given["max-host-memory"]; text != "" {
		if s.MaxHost, err = units.ParseBytes(text); err != nil {
			return s, err
		}
	}
	if text := given["llm-int8-threshold"]; text != "" {
		if s.Outliers, err = strconv.ParseFloat(text, 64); err != nil {
			return s, err
		}
	}
	if text := given["layerwise-casting"]; text != "" {
		if s.Casting, err = quant.ParseWeights(text); err != nil {
			return s, err
		}
	}
	if text := given["skip-casting"]; text != "" {
		s.SkipCasting = strings.Split(text, ",")
	}
	// A list of flags is written as a line of a table in brackets.
	text := strings.TrimSuffix(strings.TrimPrefix(given["adapter"], "["), "]")
	if text == "" {
		return s, nil
	}
	list, err := csv.NewReader(strings.NewReader(text)).Read()
	for _, arg := range list {
		a := Adapter{arg, 1}
		if at := strings.LastIndexByte(arg, '='); at >= 0 {
			if a.Weight, err = strconv.ParseFloat(arg[at+1:], 64); err != nil {
				return s, err
			}
			a.Dir = arg[:at]
		}
		s.Adapters = append(s.Adapters, a)
	}
	return s, err
}

// Source is what was opened, as it can be opened again from any folder.
func (m *Model) Source() string {
	if _, err := os.Stat(m.s.Model); err != nil {
		return m.s.Model // a name
	}
	if abs, err := filepath.Abs(m.s.Model); err == nil {
		return abs
	}
	return m.s.Model
}
