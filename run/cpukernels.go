package run

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/units"
)

// cpuKernels are those of the CPU next to GPUs, asked for while planning. The CPU is opened when it is
// asked for the first time, and once.
type cpuKernels struct{}

var openCPU = sync.OnceValues(func() (device.Device, error) { return device.Open(cpuDevice, device.Options{}) })

// Kernel prepares a call.
func (cpuKernels) Kernel(call op.Call) (device.Kernel, error) {
	cpu, err := openCPU()
	if err != nil {
		return nil, fmt.Errorf("opening the CPU: %w", err)
	}
	return cpu.Kernel(call)
}

// cpuCalls tells how long the CPU takes for matmuls of few rows with weights in host memory, which is
// measured when it is first asked for: with a weight that no cache holds, in some tens of milliseconds for each
// type and number of rows.
type cpuCalls struct{}

// measuredCPU is what was measured in this process.
var measuredCPU = struct {
	sync.Mutex
	rates map[string]units.Rate // of the weight's bytes; 0 where that failed
}{rates: map[string]units.Rate{}}

const (
	// coldBytes is the size of a weight that is measured with: more than caches of CPUs have.
	coldBytes = 512 << 20
	// fewRows is up to how many rows calls are measured.
	fewRows = 64
	// coldTries is how often a call is timed; the shortest counts.
	coldTries = 4
)

// Time of a call; false of all but matmuls of few rows.
func (cpuCalls) Time(c op.Call) (machine.CallTime, bool) {
	if c.Kind != op.MatMul && c.Kind != op.QuantizedMatmul || len(c.In) < 2 || len(c.In[1].Shape) != 2 || c.In[0].Shape.Rows() > fewRows || c.Kind == op.MatMul && !c.Attr.TransB {
		return machine.CallTime{}, false
	}
	rate := coldRate(c)
	if rate <= 0 {
		return machine.CallTime{}, false
	}
	return machine.CallTime{Device: rate.Time(units.Bytes(c.In[1].Bytes()))}, true
}

// Within is the same whatever memory there is.
func (c cpuCalls) Within(int64) machine.Calls { return c }

// ReadRate is how fast one row is multiplied by weights in a type, in their bytes a second.
func (cpuCalls) ReadRate(t dtype.Type) units.Rate {
	if !t.IsPlain() {
		return 0
	}
	return coldRate(op.Call{Kind: op.MatMul, Attr: op.Attr{TransB: true}, In: []op.Type{{DType: t, Shape: []int64{1, 1, 4096}}, {DType: t, Shape: []int64{4096, 4096}}},
		Out: []op.Type{{DType: t, Shape: []int64{1, 1, 4096}}}})
}

// coldRate measures a call with a large weight of the same kind.
func coldRate(c op.Call) units.Rate {
	c.Attr.Bias, c.Attr.Plus, c.Attr.Accumulate, c.In = false, false, false, []op.Type{c.In[0], c.In[1]}
	key := fmt.Sprint(c.Kind, c.Attr, c.In[0], c.In[1].DType)
	measuredCPU.Lock()
	defer measuredCPU.Unlock()
	if rate, known := measuredCPU.rates[key]; known {
		return rate
	}
	each := c.In[1].DType.Bytes(c.In[1].Shape[1] * 256) // rows by 256: whole blocks of every type
	rows := max(coldBytes/max(each, 1), 1) * 256
	c.In[1].Shape = []int64{rows, c.In[1].Shape[1]}
	c.Out = []op.Type{{DType: c.In[0].DType, Shape: c.In[0].Shape.WithLast(rows)}}
	took, err := timeCold(c)
	var rate units.Rate
	if err == nil && took > 0 {
		rate = units.Rate(float64(c.In[1].Bytes()) / took.Seconds())
	}
	measuredCPU.rates[key] = rate
	return rate
}

// timeCold is the shortest time of a call on the CPU, with operands of zeros in memory of their own.
func timeCold(c op.Call) (best time.Duration, err error) {
	cpu, err := openCPU()
	if err != nil {
		return 0, err
	}
	k, err := cpu.Kernel(c)
	if err != nil {
		return 0, err
	}
	l, size := device.Arrange(c, k.Workspace(), cpu.Info().Alignment)
	l.Args = &op.Args{}
	memory, err := cpu.Alloc(size)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, memory.Free()) }()
	for host, at := memory.Host(), 0; at < len(host); at += 4096 { // pages that were never written are all the same one
		host[at] = 0
	}
	l.Place(memory)
	q, err := cpu.Queue("compute")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	for range coldTries {
		began := time.Now()
		if err := cmp.Or(q.Launch(k, l), q.Sync()); err != nil {
			return 0, err
		}
		if took := time.Since(began); best == 0 || took < best {
			best = took
		}
	}
	return best, nil
}
