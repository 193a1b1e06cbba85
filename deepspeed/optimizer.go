package deepspeed

import (
	"encoding/json"
	"strings"

	"spillway/dtype"
	"spillway/optim"
)

// optimizer reads the section into ours. DeepSpeed's defaults are not PyTorch's.
func (c *Config) optimizer(r *reader, root *object) {
	section := root.child("optimizer")
	kind, ok := section.text("type")
	if !ok {
		if c.bf16States {
			r.notice("bf16.bf16_optimizer_states", Unused, "no optimizer is named that would keep any")
		}
		return
	}
	p := section.child("params")
	name := strings.ToLower(kind)
	if name == "adam" || name == "fusedadam" { // which means AdamW unless told otherwise
		name = "adam"
		decoupled, said := p.flag("adam_w_mode")
		if decoupled || !said {
			name = "adamw"
		}
	}
	if name == "lamb" {
		r.fail("%s is %q: DeepSpeed bounds its ratio of norms by min_coeff and max_coeff, which is not done here, so the numbers would be others; take adamw, or leave the section out and give --optimizer lamb", section.at("type"), kind)
		return
	}
	if name == "muon" {
		r.fail("%s is %q: DeepSpeed asks the model which params it takes, and has a rate for each of its two optimizers, so the numbers would be others; take adamw, or leave the section out and give --optimizer muon", section.at("type"), kind)
		return
	}
	o, err := optim.Parse(name)
	if err != nil {
		r.fail("%s is %q; here are %s, with %s for what they keep", section.at("type"), kind, strings.Join(optim.Names(), ", "), optim.StorageEndings())
		return
	}
	if torch, _ := p.flag("torch_adam"); !torch {
		o.WeightDecay = 0 // DeepSpeed's own Adam; PyTorch's has its own default
	}
	p.into("lr", &o.LR)
	p.into("weight_decay", &o.WeightDecay)
	for _, key := range []string{"eps", "momentum", "dampening"} {
		if v, ok := p.number(key); ok {
			c.set(r, p.at(key), &o, key, v)
		}
	}
	if v, ok := p.flag("nesterov"); ok && v {
		c.set(r, p.at("nesterov"), &o, "nesterov", 1)
	}
	c.betas(r, p, &o)
	if c.bf16States {
		o.Storage = dtype.BF16
	}
	if full, said := p.flag("fp32_optimizer_states"); said && !full && c.Precision != dtype.F32 {
		o.Storage = c.Precision // DeepSpeed can have states in the type of the weights
	}
	for _, key := range []string{"bias_correction", "amsgrad"} {
		if v, ok := p.flag(key); ok && v != (key == "bias_correction") {
			r.fail("%s is %v, which is not there; leave it out", p.at(key), v)
		}
	}
	if err := o.Check(); err != nil {
		r.fail("%s: %v", section.path, err)
	}
	c.Optimizer, c.LearningRate = &o, o.LR
	if p.open("lr") {
		c.LearningRate = 0
	}
}

// into sets a number if the key is there.
func (o *object) into(key string, target *float64) {
	if v, ok := o.number(key); ok {
		*target = v
	}
}

// set changes a hyper-parameter. One that the optimizer does not have is reported unless
// it is 0, which says that it is not used.
func (c *Config) set(r *reader, at string, o *optim.Config, name string, value float64) {
	if err := o.Set(name, value); err != nil && value != 0 {
		r.fail("%s: %v", at, err)
	}
}

func (c *Config) betas(r *reader, p *object, o *optim.Config) {
	v, ok := p.take("betas")
	if !ok {
		return
	}
	list, _ := v.([]any)
	for i, name := range []string{"beta1", "beta2"} {
		if len(list) != 2 {
			break
		}
		n, _ := list[i].(json.Number)
		f, err := n.Float64()
		if err != nil {
			list = nil
			break
		}
		c.set(r, p.at("betas"), o, name, f)
	}
	if len(list) != 2 {
		p.wrong("betas", v, "two numbers")
	}
}

// usual are DeepSpeed's defaults of schedulers.
const (
	usualMaxRate = 0.001
	usualWarmup  = 1000
	usualCosMin  = 0.0001
)

// scheduler reads the section into ours. WarmupLR and WarmupDecayLR set the rate
// themselves, WarmupCosineLR scales the optimizer's.
func (c *Config) scheduler(r *reader, root *object) {
	section := root.child("scheduler")
	kind, ok := section.text("type")
	if !ok {
		return
	}
	p := section.child("params")
	s := optim.Schedule{Warmup: usualWarmup}
	if v, ok := p.whole("warmup_num_steps"); ok {
		s.Warmup = int(min(max(v, 2), 1<<31-1)) // as DeepSpeed does
	}
	if p.open("warmup_num_steps") {
		s.Warmup = 0
	}
	if how, ok := p.text("warmup_type"); !ok || how != "linear" {
		if ok && how != "log" {
			r.fail("%s is %q; it is log or linear", p.at("warmup_type"), how)
		}
		s.Log = s.Warmup > 0
	}
	switch kind {
	case "WarmupLR":
		s.Kind = optim.Constant
		c.rates(r, p, &s)
	case "WarmupDecayLR":
		s.Kind = optim.Linear
		c.rates(r, p, &s)
		s.Floor = s.Start
	case "WarmupCosineLR":
		s.Kind, s.Floor = optim.Cosine, usualCosMin
		p.into("warmup_min_ratio", &s.Start)
		p.into("cos_min_ratio", &s.Floor)
	default:
		r.fail("%s is %q; it is WarmupLR, WarmupDecayLR or WarmupCosineLR here", section.at("type"), kind)
		return
	}
	c.total(r, p, &s)
	if !s.Log && s.Warmup > 0 || s.Kind == optim.Linear {
		r.notice(section.at("type"), Changed, "rates come one iteration earlier: DeepSpeed uses the first one twice")
	}
	c.Schedule = &s
}

// rates reads the lowest and highest rate.
func (c *Config) rates(r *reader, p *object, s *optim.Schedule) {
	low, high := 0.0, usualMaxRate
	p.into("warmup_min_lr", &low)
	p.into("warmup_max_lr", &high)
	if !(low >= 0) || !(high > 0) || low > high {
		r.fail("%s is %v and %s %v; they are rates, the second above 0 and the first not above it", p.at("warmup_min_lr"), low, p.at("warmup_max_lr"), high)
		return
	}
	if p.open("warmup_max_lr") {
		high = c.LearningRate
	}
	if c.LearningRate > 0 && c.LearningRate != high {
		r.notice("optimizer.params.lr", Unused, "the scheduler sets the rate, at its highest %v", high)
	}
	if high > 0 {
		s.Start = low / high
	}
	c.LearningRate = high
	if c.Optimizer != nil && high > 0 {
		c.Optimizer.LR = high
	}
}

// total is how many iterations the schedule has. Left open, it is what the run has.
func (c *Config) total(r *reader, p *object, s *optim.Schedule) {
	n, ok := p.whole("total_num_steps")
	switch {
	case s.Kind == optim.Constant:
		if ok {
			r.notice(p.at("total_num_steps"), Unused, "after the warm-up the rate stays")
		}
		return
	case !ok && !p.open("total_num_steps"):
		r.fail("%s is missing; it is the number of iterations, or \"auto\"", p.at("total_num_steps"))
	case ok && n < int64(s.Warmup):
		r.fail("%s is %d, less than the %d of the warm-up", p.at("total_num_steps"), n, s.Warmup)
	}
	s.Total = int(n)
}
