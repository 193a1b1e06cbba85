package arch

import (
	"fmt"
	"slices"

	"spillway/hf"
	"spillway/nn"
)

func init() {
	Register("qwen2", Architecture{qwen2, Keys{Read: slices.Concat(llamaKeys, windowKeys)}})
}

// windowKeys are the keys of Qwen's windows.
var windowKeys = []string{"sliding_window", "use_sliding_window", "max_window_layers", "layer_types"}

// qwen2 is Qwen 2 and 2.5: Llama with biases on queries, keys and values, and a
// window that may be switched on in some layers.
func qwen2(c *hf.Config) (nn.Model, Info, error) {
	if err := qwenWindows(c); err != nil {
		return nil, Info{}, err
	}
	return llamaFamily(c, llamaVariant{qkvBias: true, window: c.Window})
}

// qwenWindows refuses layer_types that contradict the config's sliding window, or that are
// not known.
func qwenWindows(c *hf.Config) error {
	for i, kind := range c.LayerTypes {
		switch {
		case kind == "sliding_attention" && c.Window(i) == 0:
			return fmt.Errorf("layer %d has sliding_attention, but use_sliding_window is off or sliding_window is not given", i)
		case kind != "sliding_attention" && kind != "full_attention":
			return fmt.Errorf("layer %d has attention %q, want full_attention or sliding_attention", i, kind)
		}
	}
	return nil
}
