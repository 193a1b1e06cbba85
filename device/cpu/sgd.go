package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() { RegisterNative("sgd", sgd, nil) }

func sgd(c op.Call, workers int) Program {
	last, o := len(c.In)-1, &kernel.SGD{Flush: flushesDenormals(c.In[2])}
	scalars := scalarsOf(c.Kind, "rate", "decay", "momentum", "fresh", "direct", "through", "has_momentum")
	set := func(l *device.Launch) (clip float32) {
		s := scalars(l)
		o.SGDStep = kernel.SGDStep{Rate: s[0], Decay: s[1], Momentum: s[2], Fresh: s[3], Direct: s[4], Through: s[5], HasMomentum: s[6] != 0 && last > 2}
		o.Clip = F32(l, last)[0]
		return o.Clip
	}
	return update(c, workers, set, func(w, g []float32, s [2][]float32) { o.Update(w, g, s[0]) })
}
