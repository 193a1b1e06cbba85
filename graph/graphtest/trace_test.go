package graphtest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/shape"
)

// Mistakes and nodes of a traced program carry the line of the model code, here
// this file, not of the builder.
func TestTracesNameTheModelCode(t *testing.T) {
	three := op.Type{DType: dtype.F32, Shape: shape.Of(3)}
	b := graph.NewBuilder("block", graph.Config{})
	x := b.Input(three)
	_, _, line, _ := runtime.Caller(0)
	y := b.Scale(x, 2) // two lines of model code: this one is right
	b.Linear(y, b.Param("w", op.Type{DType: dtype.F32, Shape: shape.Of(4, 5)}, false), 0)
	if want := here(line + 2); b.Err() == nil || !strings.Contains(b.Err().Error(), "block: "+want+": matmul") {
		t.Errorf("error %v, want %s in it", b.Err(), want)
	}

	b = graph.NewBuilder("block", graph.Config{})
	p, err := b.Program(graph.Carry, b.Scale(b.Input(three), 2))
	_, _, line, _ = runtime.Caller(0)
	if err != nil || p.Nodes[0].At != here(line-1) {
		t.Errorf("node is from %v, want %s (%v)", p.Nodes[0].At, here(line-1), err)
	}
}

func here(line int) string { return fmt.Sprintf("trace_test.go:%d", line) }
