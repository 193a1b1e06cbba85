package run_test

import (
	"testing"

	"spillway"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/run"
)

// reader is a device whose calls depend on what is read in turn.
type reader struct{ among *[]int64 }

func (r reader) Time(op.Call) (machine.CallTime, bool) { return machine.CallTime{}, false }
func (r reader) Within(int64) machine.Calls            { return r }
func (r reader) Among(n int64) machine.Calls {
	*r.among = append(*r.among, n)
	return r
}

// A device knows what a pass over the model reads, where nothing is trained: keys and values, and all weights but the tables that
// tokens and positions are looked up in, of which a tied head reads the first again.
func TestDevicesKnowWhatIsReadInTurn(t *testing.T) {
	const vocab, hidden = 50257, 768
	layers := int64(12 * (12*hidden*hidden + 13*hidden))
	cache := int64(12 * 2 * 64 * hidden)
	want := 4 * (layers + 2*hidden + vocab*hidden + cache)
	for task, reported := range map[spillway.Task][]int64{spillway.Generate: {want}, spillway.Train: nil} {
		var among []int64
		m := parse(t, "cpu:8GiB,host:16GiB")
		m.Devices[0].Calls = reader{&among}
		o := spillway.Options{Task: task, Precision: dtype.F32, Machine: m}
		if task == spillway.Generate {
			o.Generation = run.Generation{Context: 64}
		} else {
			o.MicroBatchSize, o.Seq = 1, 64
		}
		if _, err := open(t, "gpt2").Plan(o); err != nil {
			t.Fatal(err)
		}
		if len(among) != len(reported) || len(reported) > 0 && among[0] != reported[0] {
			t.Errorf("%s: %v, want %v", task, among, reported)
		}
	}
}
