package advise

import (
	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/search"
	"spillway/planner/strategy"
)

// Compared is a strategy and what it takes here.
type Compared struct {
	Name     string `json:"name"`     // "cpu-offload"
	Strategy string `json:"strategy"` // "CPU offload"
	// Detail is the best form of it that fits, else the smallest: "CPU offload of 6 of 34
	// parameter buffers, prefetch depth 2".
	Detail string `json:"detail,omitempty"`
	Fits   bool   `json:"fits"`
	// Device is what it takes of the device that holds most, Host of host memory.
	Device  int64               `json:"device_bytes"`
	Host    int64               `json:"host_bytes"`
	Disk    int64               `json:"disk_bytes,omitempty"`
	Peak    map[plan.Tier]int64 `json:"peak_bytes,omitempty"` // of all devices together
	Seconds float64             `json:"step_seconds,omitempty"`
	Bound   string              `json:"bound,omitempty"`
	// Reason it does not fit, or cannot be here.
	Reason string `json:"reason,omitempty"`
	// Possible is false where the machine or the goal rules the strategy out.
	Possible bool `json:"possible"`
}

// Compare plans every strategy by itself and says what each takes.
func (r Request) Compare() ([]Compared, error) {
	m, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		return nil, err
	}
	b, err := layout.New(m, r.Goal, r.Site)
	if err != nil {
		return nil, err
	}
	single := *b // what was traced and placed is shared
	single.Site.Devices = 1
	var list []Compared
	for _, st := range strategy.All {
		on, lines := &single, st.Lines
		if st.Spread != nil {
			on = b
		} else if lines == nil || st.Needs.Training && !b.Training() {
			continue
		}
		row := Compared{Name: st.Name, Strategy: st.Title}
		if err := st.Refuse(on.Facts()); err != nil {
			row.Reason = err.Error()
		} else if err := row.fill(on, st); err != nil {
			return nil, err
		}
		list = append(list, row)
	}
	return list, nil
}

// fill plans the strategy at its best.
func (c *Compared) fill(b *layout.Layout, st *strategy.Strategy) error {
	o, err := search.Alone(b, st)
	if err != nil {
		return err
	}
	c.Detail, c.Fits, c.Device, c.Host, c.Disk, c.Peak, c.Reason, c.Possible = strategy.Title(o.Choice), o.Fits, o.Device, o.Host, o.Disk, o.Peak, o.Reason, true
	if o.Fits {
		c.Seconds, c.Bound = o.Forecast.StepSeconds, o.Forecast.Bound
	}
	return nil
}
