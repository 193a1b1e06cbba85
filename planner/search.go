package planner

import (
	"errors"
	"fmt"
	"sort"

	"spillway/plan"
	"spillway/spec"
	"spillway/units"
)

// Make finds the fastest plan that fits the site. The model must be traced for
// the micro-batch wanted. When nothing fits the error is a *FitError.
func Make(m *spec.Model, g Goal, site Site) (*plan.Plan, error) {
	b, err := newBlueprint(m, g, site)
	if err != nil {
		return nil, err
	}
	s := &search{b: b, made: map[mix]*candidate{}}
	for _, family := range s.families() {
		if err := s.try(family); err != nil {
			return nil, err
		}
	}
	best := s.best()
	if best == nil {
		return nil, s.fitError()
	}
	if best, err = s.climb(best); err != nil {
		return nil, err
	}
	best.plan.Strategy, best.plan.Reason = best.name, s.reason(best)
	best.plan.Rejected = s.rejected(best)
	return best.plan, plan.Verify(best.plan)
}

// search tries families of choices.
type search struct {
	b     *blueprint
	tried []*candidate
	made  map[mix]*candidate
	lean  *candidate // the one that takes least of the device
}

// candidate is a choice with its plan.
type candidate struct {
	name   string
	mix    mix
	choice Choice
	plan   *plan.Plan
	fits   bool
}

// family is a line of choices from most memory to least: the first that fits is
// the one to have.
type family struct {
	size int // mixes 0 .. size
	mix  func(i int) mix
}

// mix is a choice in numbers: how many of the slabs and blocks are treated which
// way. Slabs are spread evenly, blocks are taken from the first on, whose values
// wait longest.
type mix struct {
	streamed  int // slabs whose weights stream
	offloaded int // slabs whose optimizer state rests on the host
	recompute int // the first L steps give up cheap values block by block, the next L everything
	spilled   int // blocks whose values wait on the host
	window    int
	ahead     int // updates whose state is fetched beforehand
}

// families lists the lines to search. Each leaves one thing free and fixes the
// others.
func (s *search) families() []family {
	blocks, slabs := len(s.b.model.Blocks), len(s.b.slabs.list)
	list := []family{{0, func(int) mix { return mix{} }}}
	if !s.b.training() {
		for _, w := range []int{3, 2, 1} {
			list = append(list, family{slabs, func(i int) mix { return mix{streamed: i, window: w} }})
		}
		return list
	}
	list = append(list, family{2 * blocks, func(i int) mix { return mix{recompute: i} }})
	for _, r := range []int{0, blocks, 2 * blocks} {
		list = append(list, family{slabs, func(i int) mix { return mix{offloaded: i, recompute: r, ahead: 1} }})
	}
	for _, w := range []int{2, 1} {
		for _, r := range []int{0, blocks, 2 * blocks} {
			list = append(list, family{slabs, func(i int) mix { return mix{i, slabs, r, 0, w, w - 1} }})
		}
	}
	list = append(list, family{slabs, func(i int) mix { return mix{i, slabs, 2 * blocks, blocks, 1, 0} }})
	for _, r := range []int{blocks, 2 * blocks} {
		list = append(list,
			family{blocks, func(i int) mix { return mix{0, slabs, r, i, 0, 1} }},
			family{slabs, func(i int) mix { return mix{i, slabs, r, blocks, 2, 1} }})
	}
	return list
}

// choice of a mix.
func (s *search) choice(m mix) Choice {
	b := s.b
	c := Choice{Streamed: spread(m.streamed, len(b.slabs.list)), Offloaded: spread(m.offloaded, len(b.slabs.list)),
		Level: make([]Level, len(b.model.Blocks)), Spilled: make([]bool, len(b.model.Blocks)),
		Window: m.window, Ahead: m.ahead, Vertical: m.streamed+m.offloaded > 0}
	for i := range c.Level {
		c.Spilled[i] = i < m.spilled
		switch {
		case i < m.recompute-len(c.Level):
			c.Level[i] = KeepNone
		case i < m.recompute:
			c.Level[i] = KeepProducts
		}
	}
	return c
}

// spread marks n of the places, as evenly as can be.
func spread(n, of int) []bool {
	marks := make([]bool, of)
	for i := range marks {
		marks[i] = (i+1)*n/of > i*n/of
	}
	return marks
}

// try finds the first choice of a family that fits, by bisection, and forecasts
// it. A family without one leaves its leanest as rejected.
func (s *search) try(f family) error {
	lo, hi := 0, f.size // the answer, if any, is in [lo, hi]
	c, err := s.make(f.mix(hi))
	if err != nil {
		return err
	}
	if s.lean == nil || c.need() < s.lean.need() {
		s.lean = c
	}
	for c.fits && lo < hi {
		mid := (lo + hi) / 2
		half, err := s.make(f.mix(mid))
		if err != nil {
			return err
		}
		if half.fits {
			hi, c = mid, half
		} else {
			lo = mid + 1
		}
	}
	s.tried = append(s.tried, c)
	return s.forecast(c)
}

// make emits the plan of a mix and sees whether it fits.
func (s *search) make(m mix) (*candidate, error) {
	if c, ok := s.made[m]; ok {
		return c, nil
	}
	c := &candidate{mix: m, choice: s.choice(m)}
	p, err := s.b.emit(c.choice)
	if err != nil {
		return nil, err
	}
	c.plan, c.name = p, c.title()
	c.fits = c.need() <= s.b.site.Budget && c.host()+s.shared(c) <= s.b.site.HostBudget
	s.made[m] = c
	return c, nil
}

// forecast fills in how long a candidate that fits takes.
func (s *search) forecast(c *candidate) (err error) {
	if !c.fits || c.plan.Forecast != nil {
		return nil
	}
	order(c.plan)
	c.plan.Forecast, err = forecast(c.plan, s.b.site)
	return err
}

// shared is the device memory that counts against the host too.
func (s *search) shared(c *candidate) int64 {
	if s.b.site.SharedPools {
		return c.need()
	}
	return 0
}

// need is the memory of the device that takes most.
func (c *candidate) need() (most int64) {
	for _, a := range c.plan.Arenas {
		if a.Tier == plan.OnDevice {
			most = max(most, a.Bytes)
		}
	}
	return most
}

func (c *candidate) host() (n int64) {
	for tier, bytes := range c.plan.Peak() {
		if tier != plan.OnDevice {
			n += bytes
		}
	}
	return n
}

// title says what is special about a choice.
func (c *candidate) title() string {
	name := "standard"
	switch streamed := count(c.choice.Streamed); {
	case streamed > 0:
		name = fmt.Sprintf("cpu offload, window %d, %d of %d slabs streamed", c.choice.Window, streamed, len(c.choice.Streamed))
	case count(c.choice.Offloaded) > 0:
		name = fmt.Sprintf("optimizer offload, %d of %d slabs", count(c.choice.Offloaded), len(c.choice.Offloaded))
	}
	var products, none int
	for _, l := range c.choice.Level {
		switch l {
		case KeepProducts:
			products++
		case KeepNone:
			none++
		}
	}
	also := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); name == "standard" {
			name = text
		} else {
			name += ", " + text
		}
	}
	if none > 0 {
		also("checkpointing %d of %d blocks", none, len(c.choice.Level))
	} else if products > 0 {
		also("checkpointing cheap values of %d of %d blocks", products, len(c.choice.Level))
	}
	if n := count(c.choice.Spilled); n > 0 {
		also("activations of %d of %d blocks on the host", n, len(c.choice.Spilled))
	}
	return name
}

// best is the fastest of those that fit; among equals the one with less memory.
func (s *search) best() (best *candidate) {
	for _, c := range s.tried {
		if !c.fits {
			continue
		}
		if best == nil || better(c, best) {
			best = c
		}
	}
	return best
}

func better(a, b *candidate) bool {
	ta, tb := a.plan.Forecast.StepSeconds, b.plan.Forecast.StepSeconds
	if ta != tb {
		return ta < tb
	}
	return a.need() < b.need()
}

// reason says in one line why the plan is what it is.
func (s *search) reason(best *candidate) string {
	standard := s.tried[0]
	have := units.Bytes(s.b.site.Budget)
	if best == standard {
		return fmt.Sprintf("everything needs %v, %s has %v", units.Bytes(standard.need()), s.b.site.Device, have)
	}
	if standard.fits {
		return fmt.Sprintf("forecast %.4g s per iteration against %.4g s with everything on %s", best.plan.Forecast.StepSeconds, standard.plan.Forecast.StepSeconds, s.b.site.Device)
	}
	return fmt.Sprintf("everything needs %v, %s has %v", units.Bytes(standard.need()), s.b.site.Device, have)
}

// rejected lists the other candidates with what spoke against them, each title
// once.
func (s *search) rejected(best *candidate) []plan.Option {
	var list []plan.Option
	seen := map[string]bool{best.name: true}
	for _, c := range s.tried {
		if seen[c.name] {
			continue
		}
		seen[c.name] = true
		o := plan.Option{Strategy: c.name, Fits: c.fits, PeakBytes: c.plan.Peak()}
		switch {
		case c.fits:
			o.StepSeconds = c.plan.Forecast.StepSeconds
			o.Reason = fmt.Sprintf("slower: %.4g s per iteration against %.4g s", o.StepSeconds, best.plan.Forecast.StepSeconds)
		case c.need() > s.b.site.Budget:
			o.Reason = fmt.Sprintf("needs %v of %s, which has %v", units.Bytes(c.need()), s.b.site.Device, units.Bytes(s.b.site.Budget))
		default:
			o.Reason = fmt.Sprintf("needs %v of host memory, %v are free", units.Bytes(c.host()+s.shared(c)), units.Bytes(s.b.site.HostBudget))
		}
		list = append(list, o)
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Fits && !list[j].Fits })
	return list
}

// fitError describes what the leanest plan lacks.
func (s *search) fitError() error {
	e := &FitError{Model: s.b.model.Name, Tier: plan.OnDevice, Needed: s.lean.need(), Budget: s.b.site.Budget,
		NeededHost: s.lean.host() + s.shared(s.lean), BudgetHost: s.b.site.HostBudget}
	if e.Needed <= e.Budget {
		e.Tier, e.Needed, e.Budget = plan.OnHost, e.NeededHost, e.BudgetHost
	}
	return e
}

// Request is a model that can be traced again for another micro-batch, so that
// when nothing fits, smaller ones can be tried.
type Request struct {
	Trace     func(rows, seq int64) (*spec.Model, error)
	Rows, Seq int64
	Goal      Goal
	Site      Site
}

// Plan makes the plan, or a FitError whose options have all been planned and do
// fit.
func (r Request) Plan() (*plan.Plan, *spec.Model, error) {
	m, err := r.Trace(r.Rows, r.Seq)
	if err != nil {
		return nil, nil, err
	}
	p, err := Make(m, r.Goal, r.Site)
	var fit *FitError
	if errors.As(err, &fit) {
		fit.Options = r.options(fit)
	}
	return p, m, err
}

// options tries changes in the order people like them: smaller micro-batches
// (the same batch in more pieces), shorter sequences, more memory.
func (r Request) options(fit *FitError) []FitOption {
	var list []FitOption
	try := func(change string, q Request) bool {
		m, err := q.Trace(q.Rows, q.Seq)
		if err != nil {
			return false
		}
		p, err := Make(m, q.Goal, q.Site)
		if err != nil {
			return false
		}
		list = append(list, FitOption{Change: change, Peak: p.Peak(), Rows: q.Rows, Seq: q.Seq, Micros: q.Goal.Micros, Device: q.Site.Budget, Host: q.Site.HostBudget})
		return true
	}
	for q := r; q.Rows > 1; {
		q.Rows, q.Goal.Micros = (q.Rows+1)/2, max(q.Goal.Micros, 1)*2
		if try(fmt.Sprintf("micro-batches of %d instead of %d", q.Rows, r.Rows), q) {
			break
		}
	}
	for q := r; q.Seq > 64; {
		q.Seq /= 2
		if try(fmt.Sprintf("sequences of %d instead of %d", q.Seq, r.Seq), q) {
			break
		}
	}
	q := r
	q.Site.Budget = max(q.Site.Budget, fit.deviceNeed())
	q.Site.HostBudget = max(q.Site.HostBudget, fit.NeededHost)
	try(fmt.Sprintf("a machine with %v on %s and %v of host memory", units.Bytes(q.Site.Budget), q.Site.Device, units.Bytes(q.Site.HostBudget)), q)
	return list
}
