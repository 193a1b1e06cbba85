package plan_test

import (
	"bytes"
	"strings"
	"testing"

	"spillway/internal/bounded"
	"spillway/plan"
)

// Large files of small parts take memory in proportion to their size.
func TestLargePlans(t *testing.T) {
	for _, field := range []string{"instructions", "buffers", "programs", "params", "strategies", "bindings", "nodes"} {
		for _, item := range []string{"{}", "[]", "null", "0", `""`} {
			text := `{"version":4,"` + field + `":[` + strings.TrimSuffix(strings.Repeat(item+",", 600_000/len(item)), ",") + `]}`
			bounded.Check(t, len(text), func() { _, _ = plan.Read(bytes.NewReader([]byte(text))) })
			if t.Failed() {
				t.Fatalf("%s of %s", field, item)
			}
			inner := `{"version":4,"instructions":[{"` + field + `":[` + strings.TrimSuffix(strings.Repeat(item+",", 600_000/len(item)), ",") + `]}]}`
			bounded.Check(t, len(inner), func() { _, _ = plan.Read(bytes.NewReader([]byte(inner))) })
			if t.Failed() {
				t.Fatalf("%s of %s in an instruction", field, item)
			}
		}
	}
}
