package sim

import (
	"math"
	"time"
)

// throttle is how a GPU stays within its power limit: when the average power of the last
// moments is too high, it lowers its clock. So matmuls run at full speed in bursts, and
// slower in sustained work.
//
// The unit of power is what the fastest matmuls take at full speed, without what an idle GPU
// takes. The constants are fitted to one H200: its matmuls without pause, in bursts of 16 to
// 290 ms, and between additions run within 4% of this.
type throttle struct {
	limit float64       // of power; 1 or more never throttles
	power float64       // moving average
	at    time.Duration // time of the average
}

const (
	// powerWindow is the time constant of the average.
	powerWindow = 100 * time.Millisecond
	// powerOfSpeed is the exponent with which power grows with speed: voltage grows too.
	powerOfSpeed = 2.5
	// otherPower is the power of everything but matmuls, which keeps memory or slower units
	// busy.
	otherPower = 0.5
)

// newThrottle follows from the rates of matmuls in bursts and in sustained work. It begins at
// its limit, as in the middle of a training run.
func newThrottle(x *Timing) throttle {
	if x.sustained <= 0 || x.sustained >= x.matmul {
		return throttle{limit: 1, power: 1}
	}
	limit := math.Pow(float64(x.sustained/x.matmul), powerOfSpeed)
	return throttle{limit: limit, power: limit}
}

// duration is how long a kernel takes that begins now: it runs at full speed until the
// average reaches the limit, then at the speed that stays there.
func (c *throttle) duration(now time.Duration, k *virtualKernel) time.Duration {
	if c.limit >= 1 || k.took == 0 {
		return k.took
	}
	c.pass(now-c.at, 0)
	full, power := k.took, k.energy/k.took.Seconds()
	switch {
	case power <= c.limit:
	case c.power >= c.limit:
		full = 0
	default: // until the average reaches the limit
		full = min(full, time.Duration(float64(powerWindow)*math.Log((power-c.power)/(power-c.limit))))
	}
	c.pass(full, power)
	took := k.took
	if left := 1 - float64(full)/float64(k.took); left > 0 {
		speed := math.Pow(c.limit/power, 1/powerOfSpeed)
		took += time.Duration(left * float64(k.matmuls) * (1/speed - 1))
	}
	c.at = now + took
	return took
}

// pass moves the average towards a power for some time.
func (c *throttle) pass(d time.Duration, power float64) {
	if d > 0 {
		c.power = power + (c.power-power)*math.Exp(-float64(d)/float64(powerWindow))
	}
}
