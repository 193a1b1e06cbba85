package main

import (
	"fmt"

	"spillway"
	"spillway/units"
)

// writeGeneration shows the cache of a plan to generate, and what its steps will do.
func writeGeneration(p *page, g *spillway.GenerationForecast, shared bool) {
	p.line("cache", "%v: %s pages of %d tokens, %v a token", units.Bytes(g.CacheBytes), grouped(g.Pages), g.Page, units.Bytes(g.TokenBytes))
	p.line("prefill", "%s for a chunk of %s tokens, %s tokens/s", units.Seconds(g.ChunkSeconds), grouped(g.Chunk), grouped(int64(float64(g.Chunk)/g.ChunkSeconds)))
	if g.PassTokens > 0 {
		p.line("", "%s for %s tokens of prompts in one pass over the weights, %s tokens/s", units.Seconds(g.PassSeconds), grouped(g.PassTokens), grouped(int64(float64(g.PassTokens)/g.PassSeconds)))
	}
	p.line("first token", "%s after a prompt of %s tokens", units.Seconds(g.PromptSeconds), grouped(g.PromptTokens))
	name := "decode"
	for _, d := range g.Decode {
		how := ""
		if d.Captured {
			how = ", as a graph"
		}
		p.line(name, "%s: %s tokens/s at %s tokens, %s at %s, %s-bound%s", plural(int(d.Streams), "sequence"), rate(d.Half.TokensPerSec), grouped(d.Half.Positions),
			rate(d.Full.TokensPerSec), grouped(d.Full.Positions), resource(d.Full.Bound, shared), how)
		name = ""
	}
	if d := g.Division; d != nil {
		p.line("each token", "%s", divisionText(d, shared))
	}
}

// divisionText says who computes what.
func divisionText(d *spillway.Division, shared bool) string {
	where, to := "on the device", " to it"
	if shared {
		where, to = "stay", ""
	}
	text := fmt.Sprintf("%s of %d %s", plural(d.Device, "block"), d.Blocks, where)
	if n := d.Stream - d.Disk; n > 0 {
		text += fmt.Sprintf(", %s%s from host memory (%v, %.0f%% of the time)", streams(n), to, units.Bytes(d.StreamBytes-d.DiskBytes), 100*d.Link)
	}
	if d.Disk > 0 {
		text += fmt.Sprintf(", %s%s from the disk (%v, %.0f%% of the time)", streams(d.Disk), to, units.Bytes(d.DiskBytes), 100*d.Reading)
	}
	switch {
	case d.CPU == 1 && d.CPUBytes == 0:
		text += "; the embedding stays in host memory, where the CPU looks tokens up"
	case d.CPU > 0:
		text += fmt.Sprintf("; the CPU computes %d from host memory meanwhile (%v, %.0f%%)", d.CPU, units.Bytes(d.CPUBytes), 100*d.CPUTime)
	}
	return text
}

// streams says that so many blocks do.
func streams(n int) string {
	if n == 1 {
		return "1 streams"
	}
	return fmt.Sprintf("%d stream", n)
}

// rate is tokens a second: with a digit behind the point where there are few, and with two digits where there is less than one.
func rate(r float64) string {
	if r < 0.95 {
		return fmt.Sprintf("%.2g", r)
	}
	if r < 100 {
		return fmt.Sprintf("%.1f", r)
	}
	return grouped(int64(r + 0.5))
}
