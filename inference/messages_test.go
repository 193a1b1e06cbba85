package inference_test

import (
	"reflect"
	"strings"
	"testing"

	"spillway/inference"
)

// A conversation that is read is the whole of what the file has, or it is refused.
func TestConversationsAreReadWhole(t *testing.T) {
	list := []inference.Message{{Role: "system", Content: "be\nkind"}, {Role: "user", Content: "größe <|x|> \u2028"}}
	var b strings.Builder
	if err := inference.WriteMessages(&b, list); err != nil {
		t.Fatal(err)
	}
	if got, err := inference.ReadMessages(strings.NewReader(b.String() + "\n \n")); err != nil || !reflect.DeepEqual(got, list) {
		t.Errorf("%v (%v), want %v", got, err, list)
	}
	for text, says := range map[string]string{
		b.String() + b.String(): "behind the first",
		`{"messages": [{"role": "assistant", "content": null, "tool_calls": []}]}`:     "tool_calls",
		`{"messages": [{"role": "user", "content": "a"}], "tools": []}`:                "tools",
		`{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}`: "content",
		`{"messages": []}`: "no messages",
	} {
		if got, err := inference.ReadMessages(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v; want an error about %s", text, got, err, says)
		}
	}
}
