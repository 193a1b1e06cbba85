package sim

import (
	"math"
	"testing"
	"time"

	"spillway/dtype"
	"spillway/machine"
)

// Matmuls of 8192 in patterns, as an H200 ran them for seconds: at 843 TFLOP/s in bursts, 717
// without a pause, and in between as throttling says.
func TestThrottleIsAnH200s(t *testing.T) {
	const burst, sustained, ms = 843e12, 717e12, time.Millisecond
	for name, p := range map[string]struct {
		work, other, pause time.Duration // matmuls at the rate of bursts, additions, nothing
		rate               float64       // that matmuls reached
	}{
		"without a pause":         {20 * ms, 0, 0, 717e12},
		"40% of 41 ms":            {17 * ms, 0, 25 * ms, 840e12},
		"60% of 40 ms":            {24 * ms, 0, 16 * ms, 843e12},
		"76% of 40 ms":            {29 * ms, 0, 10 * ms, 787e12},
		"72% of 380 ms":           {245 * ms, 0, 105 * ms, 749e12},
		"42% of 420 ms":           {160 * ms, 0, 240 * ms, 764e12},
		"between as much of adds": {9 * ms, 10 * ms, 1 * ms, 811e12},
	} {
		v := NewVirtual(machine.Device{Compute: machine.Compute{BF16: burst}, Sustained: machine.Compute{BF16: sustained}}, dtype.BF16, 0, 1)
		q := &virtualQueue{v: v}
		matmuls := &virtualKernel{took: p.work, matmuls: p.work, energy: p.work.Seconds()}
		others := &virtualKernel{took: p.other, energy: otherPower * p.other.Seconds()}
		var took time.Duration
		const periods = 100
		for range periods {
			before := q.now
			if err := q.Launch(matmuls, nil); err != nil {
				t.Fatal(err)
			}
			took += q.now - before
			if err := q.Launch(others, nil); err != nil {
				t.Fatal(err)
			}
			q.now += p.pause
		}
		got := burst * periods * p.work.Seconds() / took.Seconds()
		t.Logf("%-25s %.0f TFLOP/s, measured %.0f", name, got/1e12, p.rate/1e12)
		if math.Abs(got-p.rate) > 0.04*p.rate {
			t.Errorf("matmuls %s run at %.0f TFLOP/s, an H200's at %.0f", name, got/1e12, p.rate/1e12)
		}
	}
}

// What takes less power than the fastest matmuls slows down less, or not at all; without a
// sustained rate nothing does.
func TestThrottleFollowsPower(t *testing.T) {
	run := func(r machine.Device, density float64) float64 {
		v := NewVirtual(r, dtype.BF16, 0, 1)
		k := &virtualKernel{took: time.Second, matmuls: time.Second, energy: density}
		return v.throttle.duration(0, k).Seconds()
	}
	throttled := machine.Device{Compute: machine.Compute{BF16: 813e12}, Sustained: machine.Compute{BF16: 717e12}}
	// Of the size of 2048, an H200 makes 699 TFLOP/s in a burst and 657 without a pause;
	// the gradient of attention 340 in both.
	for rate, want := range map[float64]float64{813e12: 717e12, 699e12: 657e12, 340e12: 340e12} {
		if got := rate / run(throttled, rate/813e12); math.Abs(got-want) > 0.03*want {
			t.Errorf("what runs at %.0f TFLOP/s in bursts sustains %.0f, want %.0f", rate/1e12, got/1e12, want/1e12)
		}
	}
	for _, r := range []machine.Device{{Compute: machine.Compute{BF16: 813e12}}, {Compute: machine.Compute{BF16: 813e12}, Sustained: machine.Compute{BF16: 813e12}}, {Compute: machine.Compute{BF16: 813e12}, Sustained: machine.Compute{BF16: 820e12}}} {
		if got := run(r, 1); got != 1 {
			t.Errorf("a second of work takes %v s at the rates %+v", got, r)
		}
	}
}
