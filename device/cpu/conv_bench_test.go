package cpu

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// measured are convolutions of vision, sound and video, as tools/reference/convolutions.py has them for PyTorch.
var measured = []convolved{
	{"3x3 of 64", []int{8, 56, 56, 64}, []int{64, 64, 3, 3}, nil, []int64{1, 1}, nil, 1},
	{"3x3 of 128", []int{8, 28, 28, 128}, []int{128, 128, 3, 3}, nil, []int64{1, 1}, nil, 1},
	{"3x3 of 256", []int{8, 14, 14, 256}, []int{256, 256, 3, 3}, nil, []int64{1, 1}, nil, 1},
	{"3x3 of 512", []int{8, 7, 7, 512}, []int{512, 512, 3, 3}, nil, []int64{1, 1}, nil, 1},
	{"3x3 stride 2", []int{8, 56, 56, 128}, []int{128, 128, 3, 3}, []int64{2, 2}, []int64{1, 1}, nil, 1},
	{"1x1", []int{8, 14, 14, 1024}, []int{256, 1024, 1, 1}, nil, nil, nil, 1},
	{"1x1 stride 2", []int{8, 56, 56, 256}, []int{512, 256, 1, 1}, []int64{2, 2}, nil, nil, 1},
	{"7x7 stride 2 of 3", []int{8, 112, 112, 3}, []int{64, 3, 7, 7}, []int64{2, 2}, []int64{3, 3}, nil, 1},
	{"3x3 stride 2 of 3", []int{8, 224, 224, 3}, []int{32, 3, 3, 3}, []int64{2, 2}, []int64{1, 1}, nil, 1},
	{"depthwise 7x7", []int{8, 28, 28, 192}, []int{192, 1, 7, 7}, nil, []int64{3, 3}, nil, 192},
	{"depthwise 3x3", []int{8, 56, 56, 144}, []int{144, 1, 3, 3}, nil, []int64{1, 1}, nil, 144},
	{"32 groups", []int{8, 28, 28, 256}, []int{256, 8, 3, 3}, nil, []int64{1, 1}, nil, 32},
	{"dilated", []int{8, 28, 28, 128}, []int{128, 128, 3, 3}, nil, []int64{2, 2}, []int64{2, 2}, 1},
	{"patches of 16", []int{8, 224, 224, 3}, []int{768, 3, 16, 16}, []int64{16, 16}, nil, nil, 1},
	{"1d 3", []int{8, 400, 512}, []int{512, 512, 3}, nil, []int64{1}, nil, 1},
	{"1d 7", []int{8, 1600, 64}, []int{64, 64, 7}, nil, []int64{3}, nil, 1},
	{"1d 10 stride 5", []int{4, 16000, 1}, []int{512, 1, 10}, []int64{5}, nil, nil, 1},
	{"1d depthwise 31", []int{8, 400, 256}, []int{256, 1, 31}, nil, []int64{15}, nil, 256},
	{"3d of 32", []int{2, 16, 28, 28, 32}, []int{32, 32, 3, 3, 3}, nil, []int64{1, 1, 1}, nil, 1},
	{"3d of 64", []int{2, 8, 14, 14, 64}, []int{128, 64, 3, 3, 3}, nil, []int64{1, 1, 1}, nil, 1},
	{"3d stride 2 of 3", []int{2, 16, 56, 56, 3}, []int{64, 3, 3, 7, 7}, []int64{2, 2, 2}, []int64{3, 3, 3}, nil, 1},
}

// BenchmarkConvolutions prints the best time of each and of its gradients, in milliseconds.
func BenchmarkConvolutions(b *testing.B) {
	for _, c := range measured {
		b.Run(c.name, func(b *testing.B) {
			for n, call := range c.calls(b, c.x[0]) {
				m := newBench(b, call.In[0].Bytes()+call.In[1].Bytes()+call.Out[0].Bytes()+1<<30)
				p := m.prepare(b, call.Kind, call.Attr, call.In, m.take(call.In[0].Bytes()), m.take(call.In[1].Bytes()))
				copy(F32(p.launch, 0), spread(call.In[0].Shape.Elements(), 1))
				copy(F32(p.launch, 1), spread(call.In[1].Shape.Elements(), 2))
				best := math.Inf(1)
				for range max(b.N, 10) {
					start := time.Now()
					m.run(b, p)
					best = min(best, time.Since(start).Seconds()*1e3)
				}
				b.ReportMetric(best, fmt.Sprintf("ms-%s", []string{"forward", "dx", "dw"}[n]))
			}
		})
	}
}
