package inference

import (
	"fmt"
	"strings"

	"spillway/generate"
	"spillway/machine"
	"spillway/plan"
)

// Roofline is the most tokens in a second that the machine's rates allow.
type Roofline struct {
	TokensPerSecond float64
	Bound           string // what limits it: "memory", "compute", or "link" or "disk" where weights stream
	Assumed         bool   // the rate that limits it was not measured
}

// Share says which share of the roofline a rate is, as a text: ", 63% of roofline (memory-bound)". A
// rate above it says that the roofline is not this one: the weights fit the caches, or memory was measured in a
// busy minute.
func (r Roofline) Share(rate float64) string {
	if r.TokensPerSecond == 0 || rate == 0 {
		return ""
	}
	if rate > r.TokensPerSecond {
		if r.Bound == "memory" {
			return ", faster than the measured rate of memory"
		}
		return ""
	}
	assumed := ""
	if r.Assumed {
		assumed = ", assumed rate"
	}
	return fmt.Sprintf(", %.0f%% of roofline (%s-bound%s)", 100*rate/r.TokensPerSecond, r.Bound, assumed)
}

// Under is the roofline, or none where a rate is above it.
func (r Roofline) Under(rate float64) Roofline {
	if rate > r.TokensPerSecond {
		return Roofline{}
	}
	return r
}

// Rooflines are those of computing prompts and of adding tokens to so many texts at once: a step
// reads the weights once, and what the cache holds of each text.
func (e *Engine) Rooflines(s generate.Statistics, streams int) (prefill, decode Roofline) {
	e.measureMemory()
	p := e.Run.Plan
	var resident, multiplied float64 // bytes of weights, and numbers that are multiplied for each token
	var streamed streamedBytes
	for _, slab := range p.Slabs {
		for _, q := range slab.Params {
			if len(q.Type.Shape) < 2 {
				continue
			}
			if isEmbedding(q.Name) && !e.Model.Info.Tied {
				continue // a few rows of it are read
			}
			multiplied += float64(q.Type.Shape.Elements())
			switch p.TierOf(slab.Weight) {
			case plan.OnDevice:
				resident += float64(q.Type.Bytes())
			case plan.OnDisk:
				streamed.disk += float64(q.Type.Bytes())
			default:
				streamed.host += float64(q.Type.Bytes())
			}
		}
	}
	tokens := int64(max(s.PromptTokens-s.ReusedTokens, 1))
	if p.Cache != nil {
		tokens = min(tokens, p.Cache.Chunk)
	}
	prefill = e.bound(resident, streamed, multiplied, float64(tokens))
	text := float64(s.PromptTokens)/float64(max(s.Prompts, 1)) + float64(s.NewTokens)/float64(2*max(s.Texts, 1))
	decode = e.bound(resident+e.cacheBytes(text)*float64(streams), streamed, multiplied, float64(max(streams, 1)))
	return prefill, decode
}

// streamedBytes are bytes of weights that stream in each step, by where they come from.
type streamedBytes struct{ host, disk float64 }

// measureMemory measures the memory's rate where nobody did yet, in some tens of milliseconds. It
// was assumed so far, so that the first token did not wait.
func (e *Engine) measureMemory() {
	if d := e.Rig.Machine.Devices[0]; d.Kind == machine.CPU && d.Sources["bandwidth"] == machine.Assumed {
		_ = e.Rig.Measure(false) // else it stays assumed
	}
}

// bound is the roofline of a step of so many tokens.
func (e *Engine) bound(resident float64, streamed streamedBytes, multiplied, tokens float64) (r Roofline) {
	d, precision, disk := e.Rig.Machine.Devices[0], e.Run.Options.Precision, e.Rig.Machine.Disk
	overLink := streamed.host
	if !d.Shared { // else the disk fills the device's memory
		overLink += streamed.disk
	}
	figure := precision.String()
	if _, known := d.Sources[figure]; !known {
		figure = "f32" // as Compute.Rate does
	}
	times := []struct {
		what, figure string
		seconds      float64
		of           machine.Sources
	}{
		{"memory", "bandwidth", resident / float64(d.Bandwidth), d.Sources},
		{"compute", figure, 2 * multiplied * tokens / float64(d.Compute.Rate(precision)), d.Sources},
		{"link", "in", overLink / float64(d.Link.In), d.Sources},
		{"disk", "read", streamed.disk / float64(disk.Read), disk.Sources},
	}
	var longest float64
	for _, t := range times {
		if t.seconds > longest && t.seconds < 1e9 { // a rate that is not known gives infinity
			longest, r.Bound, r.Assumed = t.seconds, t.what, t.of[t.figure] == machine.Assumed
		}
	}
	if longest > 0 {
		r.TokensPerSecond = tokens / longest
	}
	return r
}

// cacheBytes are the bytes that the cache has of a text of so many tokens.
func (e *Engine) cacheBytes(tokens float64) float64 {
	var all int64
	for _, bytes := range e.Run.Plan.HomeUsage()["cache"] {
		all += bytes
	}
	return float64(all) * min(tokens/float64(max(e.Context(), 1)), 1) / float64(max(e.Streams(), 1))
}

// isEmbedding says whether a param is a table of which a step reads a few rows.
func isEmbedding(name string) bool {
	return strings.Contains(name, "embed") || strings.Contains(name, "wte") || strings.Contains(name, "wpe")
}
