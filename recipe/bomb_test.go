package recipe

import (
	"strings"
	"testing"

	"spillway/internal/bounded"
)

// Recipes of the largest size that is read take time and memory in bounds, whatever they
// consist of.
func TestLargeRecipes(t *testing.T) {
	for name, part := range map[string]string{
		"items": "- a\n", "short items": "a,", "keys": "a: b\n", "comments": "#\n", "colons": ":\n", "dashes": "-\n", "anchors": "&a b\n", "quotes": "'',", "lines": "\n", "texts": "model: x\n", "words": "a ", "tags": "!a ", "questions": "?\n",
	} {
		for _, before := range []string{"", "data: ["} {
			text := before + strings.Repeat(part, (maxFile-len(before))/len(part))
			bounded.Check(t, len(text), func() { _ = New().read("r", []byte(text)) })
			if t.Failed() {
				t.Fatalf("%s after %q", name, before)
			}
		}
	}
}
