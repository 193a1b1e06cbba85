package cuda

import (
	"fmt"
	"sort"
	"testing"

	"spillway/arch/vision"
	"spillway/dtype"
	"spillway/graph"
	"spillway/spec"
)

// BenchmarkVisionCalls is an iteration of ResNet-50 on 128 images call by call: what each takes, how
// often it comes, and its share of the bytes that it must move.
func BenchmarkVisionCalls(b *testing.B) {
	d := openGPU(b, Options{})
	defer d.Close()
	m, err := spec.Trace("resnet50", "own", vision.NewResNet50(), graph.Config{MicroBatchSize: 128, Seq: 1, DType: dtype.BF16, Task: graph.Train})
	if err != nil {
		b.Fatal(err)
	}
	order, times := callsOf(b, d, m)
	type line struct {
		ms   float64
		text string
	}
	var lines []line
	kinds, sum := map[string]float64{}, 0.0
	for _, c := range order[1:] {
		took := timeCall(b, d, c).Seconds()
		n := times[c.String()]
		var bytes int64
		for _, t := range append(c.In[:len(c.In):len(c.In)], c.Out...) {
			bytes += t.Bytes()
		}
		ms := 1e3 * took * float64(n)
		lines = append(lines, line{ms, fmt.Sprintf("%8.3f ms  %2d x %8.1f us  %5.2f TB/s  %s", ms, n, 1e6*took, float64(bytes)/took/1e12, c)})
		kinds[string(c.Kind)] += ms
		sum += ms
	}
	sort.Slice(lines, func(i, k int) bool { return lines[i].ms > lines[k].ms })
	fmt.Printf("all calls %.2f ms\n", sum)
	for k, ms := range kinds {
		fmt.Printf("%8.3f ms  %s\n", ms, k)
	}
	for _, l := range lines {
		fmt.Println(l.text)
	}
}
