package run_test

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"

	"spillway"
	"spillway/executor"
	"spillway/plan"
)

// An inference gives the logits of one position of each sequence, those that it has among the
// logits of all positions, and sends no others to the host.
func TestLogitsOfOnePosition(t *testing.T) {
	const sequences, seq = 3, 9
	wanted := []int{8, 2, 5} // by sequence
	logits := func(all bool) ([]float32, *plan.Plan) {
		job, e := start(t, open(t, "../testdata/reference/llama"), spillway.Options{Task: spillway.Infer, MicroBatchSize: sequences, Seq: seq, AllLogits: all})
		for _, part := range job.Plan.Batch {
			to, err := e.BatchTensor(0, part.Name)
			if err != nil {
				t.Fatal(err)
			}
			for i := range len(to) / 4 {
				value := map[string]int{"tokens": i * 7 % 30, "positions": i % seq}[part.Name]
				if part.Name == "outputs" {
					value = i*seq + wanted[i]
				}
				binary.LittleEndian.PutUint32(to[4*i:], uint32(value))
			}
		}
		if err := e.CheckBatch(); err != nil {
			t.Fatal(err)
		}
		if err := e.Iterate(context.Background(), executor.IterationArgs{}); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(e.Result(0)), job.Plan
	}
	every, whole := logits(true)
	some, small := logits(false)
	vocab := len(some) / sequences
	if len(every) != sequences*seq*vocab {
		t.Fatalf("%d logits of all positions, %d of one of each sequence", len(every), len(some))
	}
	for i, at := range wanted {
		if !slices.Equal(some[i*vocab:][:vocab], every[(i*seq+at)*vocab:][:vocab]) {
			t.Errorf("sequence %d has other logits of position %d by itself", i, at)
		}
	}
	if a, b := small.Forecast.BytesOut, whole.Forecast.BytesOut; a*seq != b {
		t.Errorf("%d bytes go to the host, %d with the logits of all positions", a, b)
	}
}
