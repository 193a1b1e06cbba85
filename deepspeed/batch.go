package deepspeed

import "fmt"

// batch solves total = rows × accumulated × devices for what is not there.
func (c *Config) batch(r *reader, root *object) {
	total, hasTotal := root.count(r, "train_batch_size")
	rows, hasRows := root.count(r, "train_micro_batch_size_per_gpu")
	times, hasTimes := root.count(r, "gradient_accumulation_steps")
	n := int64(c.devices)
	switch {
	case hasTotal && hasRows && hasTimes:
		if rows*times*n != total {
			r.fail("train_batch_size is %d, but train_micro_batch_size_per_gpu %d × gradient_accumulation_steps %d × %s is %d; change one, or leave one out",
				total, rows, times, devicesText(n), rows*times*n)
		}
	case hasTotal && hasRows:
		times = divide(r, "gradient_accumulation_steps", total, rows, n, "train_micro_batch_size_per_gpu")
	case hasTotal && hasTimes:
		rows = divide(r, "train_micro_batch_size_per_gpu", total, times, n, "gradient_accumulation_steps")
	case hasTotal:
		times = 1
		rows = divide(r, "train_micro_batch_size_per_gpu", total, 1, n, "")
	case hasRows && !hasTimes && !root.open("gradient_accumulation_steps"):
		times = 1
	}
	c.MicroBatchSize, c.MicroBatches = rows, int(times*n)
}

// divide is total / (by × devices), which must be whole.
func divide(r *reader, what string, total, by, devices int64, name string) int64 {
	if total%(by*devices) == 0 {
		return total / (by * devices)
	}
	parts := devicesText(devices)
	if name != "" {
		parts = fmt.Sprintf("%s %d × %s", name, by, parts)
	}
	r.fail("train_batch_size %d does not divide by %s = %d, so %s would not be whole; use a multiple of %d", total, parts, by*devices, what, by*devices)
	return 0
}

func devicesText(n int64) string {
	if n == 1 {
		return "1 device"
	}
	return fmt.Sprintf("%d devices", n)
}

// count is a whole number above 0, small enough that products of three are whole too.
func (o *object) count(r *reader, key string) (int64, bool) {
	v, ok := o.whole(key)
	if ok && (v < 1 || v > 1<<20) {
		r.fail("%s is %d; it is a number from 1 to %d", o.at(key), v, 1<<20)
		return 1, true
	}
	return v, ok
}
