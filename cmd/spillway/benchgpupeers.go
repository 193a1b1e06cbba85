package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// gpuPeers are the programs of peers on cards, with the rows they know.
var gpuPeers = []struct {
	file string
	rows []string
}{
	{"torch_offload_forward.py", []string{forwardShort, forwardLong}},
	{"torch_train_gpu.py", []string{trainKept, trainAgain}},
}

// onGPU runs the programs of rows that were measured. What cannot be run is noted.
func (p *peers) onGPU(ctx context.Context, r *gpuReport, show func(string)) {
	for _, program := range gpuPeers {
		known := func(row *gpuRow) bool { return slices.Contains(program.rows, row.Name) }
		if !slices.ContainsFunc(r.Results, known) {
			continue
		}
		show("peers, " + program.file)
		start := time.Now()
		answer, err := p.run(ctx, peerProgram{file: program.file})
		if err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("no comparison by %s: %v", program.file, err))
			continue
		}
		r.Peers = append(r.Peers, fmt.Sprintf("%s, %s in all", answer.Version, seconds(time.Since(start).Seconds())))
		for _, result := range answer.Results {
			for _, row := range r.Results {
				if known(row) && program.rows[result.Row] == row.Name {
					row.keep(result.Peer, result.Seconds)
				}
			}
		}
	}
}

// keep keeps the best time of a peer.
func (g *gpuRow) keep(peer string, seconds float64) {
	if g.Theirs == nil {
		g.Theirs = map[string]float64{}
	}
	if had, ok := g.Theirs[peer]; !ok || seconds < had {
		g.Theirs[peer] = seconds
	}
}
