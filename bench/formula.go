package bench

import (
	"spillway/rig"
	"spillway/units"
)

// Formula is what a step takes at least that adds a token, of a model that is larger than a limited CPU: weights that stream are
// copied by a core while the others run kernels, which read all weights and the cache once. Rates are measured in the same run.
type Formula struct {
	Streamed  int64 `json:"streamed_bytes"` // from host memory, each step
	ReadBytes int64 `json:"read_bytes"`     // by kernels, each step
	DiskBytes int64 `json:"disk_bytes,omitempty"`
	rig.Streaming
	Disk units.Rate `json:"disk_bytes_per_second,omitempty"`
	// Seconds is the longer of what the memory and what the disk takes, which go on at once.
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of what was measured: 1 where a step takes no longer
}

// streaming measures how weights stream within the memory of a CPU in this moment; nil where all weights are on the device, or the
// device has memory of its own.
func (w *generationRun) streaming() (*rig.Streaming, error) {
	dev := w.here.Devices[0]
	if w.division == nil || !dev.Info().OnHost {
		return nil, nil
	}
	s, err := rig.MeasureStreaming(dev)
	return &s, err
}

// formula of a row, by the mean of the rates before and after its steps were timed: others use the memory too, more in one second and
// less in the next. It is nil where no rates were measured.
func (w *generationRun) formula(g *GenerationRow, before, after *rig.Streaming) *Formula {
	if before == nil || after == nil {
		return nil
	}
	// A disk fills the memory of a CPU itself, so what it reads is not copied.
	d := w.division
	f := &Formula{Streamed: d.StreamBytes - d.DiskBytes, ReadBytes: w.stepBytes, DiskBytes: d.DiskBytes, Streaming: before.Mean(*after)}
	f.Seconds = f.Streaming.Seconds(f.Streamed, f.ReadBytes)
	if f.Disk = w.here.Machine.Disk.Read; f.DiskBytes > 0 && f.Disk > 0 {
		f.Seconds = max(f.Seconds, float64(f.DiskBytes)/float64(f.Disk))
	}
	f.Share = f.Seconds / g.Decode.Seconds
	return f
}
