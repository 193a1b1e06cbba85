package finetune

import (
	"strconv"

	"spillway/eventlog"
)

// Columns are those of train --log and of a run's table. Where torch-optstate writes the same figure its name is used. It
// also has times of decoding and encoding optimizer state; here an update reads and writes
// packed state in one pass.
var Columns = []string{"run", "step", "loss", "val_loss", "lr", "step_time_ms", "tokens_per_second", "tensor_mem_mb", "cpu_mem_mb", "gpu_mem_mb", "gpu_peak_mb", "gpu_predicted_mb", "compression_active"}

// Row is a step as a line of the table; what there is none of is empty. Sizes are in millions
// of bytes: the optimizer state, the process, and of the devices what was measured, now and
// at most, which is the same since memory is reserved once, and what the plan predicted.
func Row(run string, it *eventlog.Iteration) []string {
	number := func(f float64) string {
		if f == 0 {
			return ""
		}
		return strconv.FormatFloat(f, 'g', 6, 64)
	}
	size := func(n int64) string { return number(float64(n) / 1e6) }
	loss := strconv.FormatFloat(it.Loss, 'g', 6, 64)
	if it.Skipped {
		loss = number(it.Loss)
	}
	return []string{run, strconv.FormatInt(it.Step, 10), loss, number(it.EvalLoss), strconv.FormatFloat(it.LR, 'g', 6, 64), number(1e3 * it.Seconds), number(it.TokensPerSecond),
		size(it.StateBytes), size(it.Resident), size(it.MeasuredBytes), size(it.MeasuredBytes), size(it.PredictedBytes), strconv.FormatBool(it.Compressed)}
}
