package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() { RegisterNative("adam", adam, nil) }

func adam(c op.Call, workers int) Program {
	a := &kernel.Adam{Flush: [2]bool{flushesDenormals(c.In[2]), flushesDenormals(c.In[3])}}
	scalars := scalarsOf(c.Kind, "couple", "beta1", "rest1", "beta2", "rest2", "root", "eps", "rate", "shrink")
	set := func(l *device.Launch) (clip float32) {
		s := scalars(l)
		a.AdamStep = kernel.AdamStep{Couple: s[0], Beta1: s[1], Rest1: s[2], Beta2: s[3], Rest2: s[4], Root: s[5], Eps: s[6], Rate: s[7], Shrink: s[8]}
		a.Clip = F32(l, 4)[0]
		return a.Clip
	}
	return update(c, workers, set, func(w, g []float32, s [2][]float32) { a.Update(w, g, s[0], s[1]) })
}
