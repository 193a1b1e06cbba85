package convert

import (
	"encoding/json"
	"fmt"
	"io"

	"spillway/checkpoint"
	"spillway/dtype"
	"spillway/optim"
	"spillway/tensorfile"
)

// Names of tensors in the state of a checkpoint, before the name of their param.
const (
	averageOf = "ema."    // the average of the weight that the run was asked to keep
	masterOf  = "master." // the weight at full precision
)

// average finds the averages of weights in a checkpoint, by the weights' names: those that a run was asked to keep, or those that a
// schedule-free optimizer is evaluated with. Weights that were not trained have none. They are of the type given, or of their
// weight's.
func average(c *checkpoint.Checkpoint, to dtype.Type) (func(name string) (tensorfile.Tensor, bool), error) {
	var settings struct {
		Average   float64      `json:"average"`
		Optimizer optim.Config `json:"optimizer"`
	}
	if err := json.Unmarshal(c.Trainer, &settings); err != nil {
		return nil, fmt.Errorf("%s: %w", checkpoint.TrainerName, err)
	}
	o := settings.Optimizer
	free := o.Name == "schedule_free_adamw"
	if settings.Average == 0 && !free {
		return nil, fmt.Errorf("the run in %s kept no average of its weights; train with --ema 0.999, or with --optimizer schedule_free_adamw", c.Path)
	}
	return func(name string) (tensorfile.Tensor, bool) {
		w, known := c.Tensor(name)
		mean, ok := c.State.Tensor(averageOf + name)
		if ok && known {
			return numbers(w, to, mean.ReadF32), true
		}
		z, ok := c.State.Tensor(optim.ScheduleFreeZ + "." + name)
		if !ok || !known || !free {
			return w, false
		}
		y, ok := c.State.Tensor(masterOf + name)
		if !ok {
			y = w
		}
		return numbers(w, to, func(dst []float32, first int64) error {
			steps := make([]float32, len(dst))
			if err := z.ReadF32(steps, first); err != nil {
				return fmt.Errorf("the state %s: %w; an average is made of states in f32, bf16 or fp16", z.Name, err)
			}
			err := y.ReadF32(dst, first)
			optim.Scored(o.Get("beta1"), dst, steps)
			return err
		}), true
	}, nil
}

// numbers is a tensor like another with numbers that a function reads.
func numbers(like tensorfile.Tensor, to dtype.Type, read func(dst []float32, first int64) error) tensorfile.Tensor {
	t := tensorfile.Tensor{Name: like.Name, Type: like.Type, Shape: like.Shape, Path: like.Path}
	if to.IsPlain() {
		t.Type = to
	}
	t.Bytes = t.Type.Bytes(t.Shape.Elements())
	t.Data = encoded{t, read}
	return t
}

// encoded has the bytes of numbers in a plain type, made as they are read.
type encoded struct {
	of   tensorfile.Tensor
	read func(dst []float32, first int64) error
}

// ReadAt gives bytes, of the first and the last number those that are asked for.
func (e encoded) ReadAt(p []byte, off int64) (int, error) {
	width := e.of.Type.Bytes(1)
	first := off / width
	n := min((off+int64(len(p))+width-1)/width, e.of.Shape.Elements()) - first
	if n <= 0 {
		return 0, io.EOF
	}
	values, raw := make([]float32, n), make([]byte, width*n)
	if err := e.read(values, first); err != nil {
		return 0, err
	}
	e.of.Type.Encode(raw, values)
	k := copy(p, raw[off-first*width:])
	if k < len(p) {
		return k, io.EOF
	}
	return k, nil
}
