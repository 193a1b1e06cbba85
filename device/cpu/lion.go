package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() { RegisterNative("lion", lion, nil) }

func lion(c op.Call, workers int) Program {
	o := &kernel.Lion{Flush: flushesDenormals(c.In[2])}
	scalars := scalarsOf(c.Kind, "beta1", "rest1", "beta2", "rest2", "rate", "shrink")
	set := func(l *device.Launch) (clip float32) {
		s := scalars(l)
		o.LionStep = kernel.LionStep{Beta1: s[0], Rest1: s[1], Beta2: s[2], Rest2: s[3], Rate: s[4], Shrink: s[5]}
		o.Clip = F32(l, 3)[0]
		return o.Clip
	}
	return update(c, workers, set, func(w, g []float32, s [2][]float32) { o.Update(w, g, s[0]) })
}
