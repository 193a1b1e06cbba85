package planner_test

import (
	"bytes"
	"testing"

	"spillway/graph"
	"spillway/internal/bounded"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
)

// Whatever is cut out of a saved plan and put in its place: the plan is refused, or written
// again from its choices and sound. Random bytes are hardly ever a plan, so the input is an
// edit: in one of several plans, n bytes at a place become others.
func FuzzRebuild(f *testing.F) {
	m := tiny.Model(f, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train})
	g, site := tiny.AdamW(2, true), tiny.Site(1<<24)
	var files [][]byte
	for _, choose := range []func(slabs, blocks int) strategy.Choice{
		strategy.Uniform(false, false, strategy.SaveAll, 1), strategy.Uniform(true, true, strategy.SaveMatmuls, 2), strategy.Uniform(true, false, strategy.SaveNone, 3),
	} {
		p, err := planner.Build(m, g, site, choose)
		if err != nil {
			f.Fatal(err)
		}
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			f.Fatal(err)
		}
		files = append(files, b.Bytes())
		at := bytes.Index(b.Bytes(), []byte(`"choices":`))
		for _, edit := range []struct {
			at, n int
			put   string
		}{
			{0, 0, ""}, {at, 12, `"choices":{"Prefetch":9,`}, {bytes.Index(b.Bytes(), []byte(`"instructions":[`)) + 16, 0, `{},`}, {b.Len() / 2, 3, "0"},
			{bytes.Index(b.Bytes(), []byte(`"micro_batch_size":`)) + 19, 1, "1000000000"},
		} {
			f.Add(uint8(len(files)-1), uint32(edit.at), uint16(edit.n), []byte(edit.put))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint32, n uint16, put []byte) {
		file := files[int(which)%len(files)]
		from := int(at) % (len(file) + 1)
		to := min(from+int(n), len(file))
		edited := bytes.Join([][]byte{file[:from], put, file[to:]}, nil)
		bounded.Check(t, len(edited), func() {
			p, err := plan.Read(bytes.NewReader(edited))
			if err != nil {
				return
			}
			made, err := planner.Rebuild(m, g, site, p)
			if err != nil {
				return
			}
			if err := plan.Verify(made); err != nil {
				t.Errorf("it is rebuilt as what Verify does not accept: %v", err)
			}
		})
	})
}
