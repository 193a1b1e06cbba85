package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"spillway/internal/stopwatch"
)

// gpuBaselines are the programs for GPUs, with the rows that each of their results is for.
var gpuBaselines = []struct {
	file string
	rows [][]string
}{
	{"torch_offload_forward.py", [][]string{{forwardShort}, {forwardLong}}},
	{"torch_train_gpu.py", [][]string{{trainSaved, pureSaved}, {trainRecomputed, pureRecomputed}}},
	{"torch_encoder_gpu.py", [][]string{{encoderForward}, {encoderTrain, encoderOnGPU}}},
	{"overflow_encoder.py", [][]string{{encoderForward}}},
	{"ramtorch_linear.py", [][]string{{linearForward, linearResident}, {linearTrain}}},
}

// onGPU runs the programs of the rows that were measured. One that cannot be run gets a note.
func (p *baselines) onGPU(ctx context.Context, r *GPUReport, show func(string)) {
	for _, program := range gpuBaselines {
		known := func(row *GPURow) bool { return slices.Contains(slices.Concat(program.rows...), row.Name) }
		if !slices.ContainsFunc(r.Results, known) {
			continue
		}
		show("baselines, " + program.file)
		start := stopwatch.Now()
		answer, err := p.run(ctx, baselineProgram{file: program.file})
		if err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("no comparison by %s: %v", program.file, err))
			continue
		}
		r.Baselines = append(r.Baselines, fmt.Sprintf("%s, %s in all", answer.Version, stopwatch.Since(start).Round(time.Second)))
		for _, result := range answer.Results {
			if result.Error != "" || result.Row < 0 || result.Row >= len(program.rows) {
				r.Notes = append(r.Notes, fmt.Sprintf("no comparison with %s of %s: %s", result.Baseline, program.file, result.Error))
				continue
			}
			for _, row := range r.Results {
				if slices.Contains(program.rows[result.Row], row.Name) {
					row.keepBest(result)
				}
			}
		}
	}
}

// keepBest keeps the best time of a baseline, and the memory it used then.
func (g *GPURow) keepBest(r baselineResult) {
	if g.Theirs == nil {
		g.Theirs, g.TheirBytes = map[string]float64{}, map[string]int64{}
	}
	if had, ok := g.Theirs[r.Baseline]; !ok || r.Seconds < had {
		g.Theirs[r.Baseline], g.TheirBytes[r.Baseline] = r.Seconds, r.Peak
	}
}
