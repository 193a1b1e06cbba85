package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"spillway/device"
	"spillway/rig"
)

// HostRow is AdamW on the CPU of the computer that the GPU is in: weights, gradients and
// moments in f32, more of them than caches hold.
type HostRow struct {
	Name    string  `json:"name"`
	Threads int     `json:"threads"`
	Ours    float64 `json:"params_per_second"`
	// Theirs are the rates of the baselines, Ratio how many times faster ours is.
	Theirs map[string]float64 `json:"theirs"`
	Ratio  map[string]float64 `json:"ratio"`
}

const (
	hostAdam       = "AdamW on the CPU"
	hostAdamParams = 128 << 20
)

// benchHost measures the CPU with all its threads.
func (r *GPUReport) benchHost(ctx context.Context, theirs *baselines) error {
	row := &HostRow{Name: hostAdam, Threads: runtime.GOMAXPROCS(0), Theirs: map[string]float64{}, Ratio: map[string]float64{}}
	var err error
	if row.Ours, err = hostAdamRate(); err != nil {
		return err
	}
	r.Host = append(r.Host, row)
	answer, err := theirs.run(ctx, baselineProgram{file: "torch_adamw.py", args: []string{"--repeat", "5", "--params", fmt.Sprint(hostAdamParams)}})
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("no comparison by torch_adamw.py: %v", err))
		return nil
	}
	for _, result := range answer.Results {
		row.Theirs[result.Kind] = result.GBytes * giga / adamBytes
		row.Ratio[result.Kind] = row.Ours / row.Theirs[result.Kind]
	}
	return nil
}

// hostAdamRate is how many params per second all threads update.
func hostAdamRate() (rate float64, err error) {
	call, err := rig.AdamW(hostAdamParams)
	if err != nil {
		return 0, err
	}
	dev, err := device.Open("cpu", device.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	took, err := rig.Time(dev, call)
	if err != nil {
		return 0, err
	}
	return hostAdamParams / took.Seconds(), nil
}
