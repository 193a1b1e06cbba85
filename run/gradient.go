package run

import (
	"fmt"

	"spillway/executor"
	"spillway/plan"
	"spillway/run/batch"
)

// GradientHook is called with the gradient of a trained param when it is complete: the sum over
// all micro-batches, before the update. What it returns takes the gradient's place; nil leaves it
// as it is. The values are the hook's until it returns.
type GradientHook func(param string, gradient batch.Tensor) (changed []float32, err error)

// OnGradient has f called in every iteration for each trained param; nil takes it off again. It
// stays through other plans of the run. While it is set, each update waits for the queues, so
// iterations are slower. The norm that gradients are clipped to is known before: with clipping
// a gradient cannot be changed. Devices that share gradients cannot show them.
func (r *Run) OnGradient(f GradientHook) error {
	r.onGradient = f
	return r.hookGradients()
}

// hookGradients gives the hook to the executor there is.
func (r *Run) hookGradients() error {
	e := r.executor
	if e == nil {
		return nil
	}
	if r.onGradient == nil {
		e.OnGradient(nil)
		return nil
	}
	computing := 0
	for _, d := range r.Plan.Devices {
		if d.Name != plan.DiskName && d.Name != plan.HostName {
			computing++
		}
	}
	if computing > 1 {
		return fmt.Errorf("%d devices share the gradients of %s, and none has them whole; look at gradients on one device", computing, r.Model.Name)
	}
	e.OnGradient(func(g executor.Tensor) error { return r.showGradient(e, g) })
	return nil
}

// showGradient calls the hook, and writes what it returns.
func (r *Run) showGradient(e *executor.Executor, g executor.Tensor) error {
	values, of := make([]float32, g.Type.Shape.Elements()), g.Type.DType
	at := func(offset int64) int64 { return offset / of.Bytes(1) }
	if err := e.Read(g, func(offset int64, chunk []byte) error {
		of.Decode(values[at(offset):at(offset+int64(len(chunk)))], chunk)
		return nil
	}); err != nil {
		return err
	}
	changed, err := r.onGradient(g.Param.Name, batch.Tensor{Shape: g.Type.Shape, Floats: values})
	switch {
	case err != nil || changed == nil:
		return err
	case len(changed) != len(values):
		return fmt.Errorf("%d numbers were given for a gradient of %d", len(changed), len(values))
	case r.Plan.Optimizer.Clip:
		return fmt.Errorf("gradients are clipped to a norm that is known already, so they cannot be changed; train without max-grad-norm and without fp16, or only look")
	}
	return e.Write(g, func(offset int64, chunk []byte) error {
		of.Encode(chunk, changed[at(offset):at(offset+int64(len(chunk)))])
		return nil
	})
}
