package planner

import (
	"spillway/plan"
	"spillway/planner/strategy"
)

// Compared is a strategy and what it takes here.
type Compared struct {
	Name     string `json:"name"`     // "cpu-offload"
	Strategy string `json:"strategy"` // "CPU offload"
	// Detail is the best form of it that fits, else the leanest: "cpu offload, window
	// 2, 6 of 34 slabs streamed".
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
	b, err := newBlueprint(m, r.Goal, r.Site)
	if err != nil {
		return nil, err
	}
	single := *b // what was traced and placed is shared
	single.site.Devices = 1
	var list []Compared
	for _, st := range strategy.All {
		on, lines := &single, st.Lines
		if st.Spread != nil {
			on = b
		} else if lines == nil || st.Needs.Training && !b.training() {
			continue
		}
		one, err := on.compare(st)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// compare finds the best plan of a strategy.
func (b *blueprint) compare(st *strategy.Strategy) (Compared, error) {
	if err := st.Refuse(b.facts()); err != nil {
		return Compared{Name: st.Name, Strategy: st.Title, Reason: err.Error()}, nil
	}
	s := newSearch(b.itself())
	var lines []strategy.Line
	if st.Spread != nil {
		lines = s.linesOf(strategy.Parallelism(st.Name)) // whatever else it does
	} else {
		lines = st.Alone(b.facts())
	}
	for _, line := range lines {
		if err := s.try(line); err != nil {
			return Compared{}, err
		}
	}
	if s.best != nil {
		return s.compared(st, s.best), nil
	}
	err := s.findSmallest()
	return s.compared(st, s.smallest), err
}

func (s *search) compared(st *strategy.Strategy, c *candidate) Compared {
	one := Compared{Name: st.Name, Strategy: st.Title, Detail: strategy.Title(c.choice), Fits: c.fits, Device: c.device, Host: c.host, Disk: c.disk, Peak: c.peak, Possible: true}
	if !c.fits {
		one.Reason = s.option(c, c).Reason
		return one
	}
	one.Seconds, one.Bound = c.forecast.StepSeconds, c.forecast.Bound
	return one
}
