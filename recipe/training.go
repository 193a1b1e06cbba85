package recipe

import (
	"flag"
	"fmt"
	"math"
	"strconv"
)

// maxEpochs bounds the passes over the data: each is counted before a run starts.
const maxEpochs = 1e6

// setEpochs takes a number of passes, which may be a fraction.
func (t *Training) setEpochs(text string) error {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number", text)
	}
	if !(x > 0 && x <= maxEpochs) {
		return fmt.Errorf("it is a number above 0, at most %d", int(maxEpochs))
	}
	t.Epochs = x
	return nil
}

// EpochSteps is how many optimizer steps Epochs take, where steps says how many full passes
// take. Of the last pass it takes the share that is asked for, rounded up: where all
// passes have as many steps this is ceil(epochs × steps per epoch), as in transformers.
func (t Training) EpochSteps(steps func(passes int64) int64) int64 {
	whole := math.Floor(t.Epochs)
	done := steps(int64(whole))
	if whole == t.Epochs {
		return done
	}
	last := steps(int64(whole)+1) - done
	// One product, so that it rounds as transformers' does: 1.1 × 10 is 11, but 10 × (1.1 - 1) is above 1.
	return done - int64(whole)*last + int64(math.Ceil(t.Epochs*float64(last)))
}

// Warmup is how many of so many steps the warm-up takes.
func (t Training) Warmup(steps int64) int {
	if share := max(t.WarmupRatio, t.warmupShare); share > 0 {
		return int(math.Ceil(float64(steps) * share)) // as transformers rounds
	}
	return max(t.Scheduler.Warmup, t.WarmupSteps)
}

// warmupFlags declares the length of the warm-up, in steps or as a share of them.
func (t *Training) warmupFlags(f *flag.FlagSet) {
	parsed(f, "0", "warmup-steps", "raise the learning rate to its peak during the first `N` steps; below 1 it is a share of all steps, as in transformers", func(text string) error {
		n, err := strconv.ParseInt(text, 10, 32)
		x, notNumber := strconv.ParseFloat(text, 64)
		switch {
		case err == nil && n >= 0:
			t.WarmupSteps, t.warmupShare = int(n), 0
		case notNumber != nil || !(x > 0 && x < 1):
			return fmt.Errorf("it is an integer from 0 on, or a share of the steps between 0 and 1")
		default:
			t.WarmupSteps, t.warmupShare = 0, x
		}
		return nil
	})
	within(f, &t.WarmupRatio, 0, 1, "warmup-ratio", "the same for a share `X` of all steps, rounded up")
}
