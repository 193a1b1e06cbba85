package sim

import (
	"math"
	"time"
)

// clock is what a card does to stay within its power: it takes account of the last moments
// and slows down when they took too much. So products run at full speed in bursts, and
// slower in work that lasts.
//
// Power is counted in that of the fastest products at full speed, without what an idle
// card takes. The constants are fitted to one H200, whose products without pause, in bursts
// of 16 to 290 ms and between additions run within 4% of this.
type throttle struct {
	limit float64       // of power; 1 or more: nothing is ever too much
	power float64       // of the last moments, on average
	at    time.Duration // when that was
}

const (
	// powerWindow is the time constant of the average.
	powerWindow = 100 * time.Millisecond
	// powerOfSpeed is the exponent with which power grows with speed, since voltage grows too.
	powerOfSpeed = 2.5
	// otherPower is what everything but products takes: it keeps memory busy, or units
	// that are not the fastest.
	otherPower = 0.5
)

// newClock is of a card whose products run at one rate in bursts and another in work that
// lasts. It begins at its limit, as in the middle of a training.
func newThrottle(x *Timing) throttle {
	if x.sustained <= 0 || x.sustained >= x.matmul {
		return throttle{limit: 1, power: 1}
	}
	limit := math.Pow(float64(x.sustained/x.matmul), powerOfSpeed)
	return throttle{limit: limit, power: limit}
}

// run is how long a kernel takes that begins now: at full speed as long as the average is
// within the limit, then at the speed that keeps it there.
func (c *throttle) duration(now time.Duration, k *virtualKernel) time.Duration {
	if c.limit >= 1 || k.took == 0 {
		return k.took
	}
	c.pass(now-c.at, 0)
	full, power := k.took, k.power()
	if power > c.limit {
		full = min(full, c.until(power))
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

// pass has the average follow a power for some time.
func (c *throttle) pass(d time.Duration, power float64) {
	if d > 0 {
		c.power = power + (c.power-power)*math.Exp(-float64(d)/float64(powerWindow))
	}
}

// until is how long a power above the limit may be taken.
func (c *throttle) until(power float64) time.Duration {
	if c.power >= c.limit {
		return 0
	}
	return time.Duration(float64(powerWindow) * math.Log((power-c.power)/(power-c.limit)))
}
