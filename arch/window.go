package arch

import "fmt"

// allPositions: every layer sees all positions before it.
func allPositions(int64) int64 { return 0 }

// window is sliding_window, 0 for none.
func (c *decoderConfig) window() int64 {
	if c.Window == nil {
		return 0
	}
	return *c.Window
}

// layerWindows are Qwen's rules: the window is used where use_sliding_window is set,
// by the layers layer_types names or else by those from max_window_layers on.
func (c *decoderConfig) layerWindows() (func(layer int64) int64, error) {
	window := c.window()
	if !c.UseWindow {
		window = 0
	}
	if c.LayerTypes == nil {
		return func(layer int64) int64 {
			if layer < c.MaxWindowLayers {
				return 0
			}
			return window
		}, nil
	}
	windows, err := c.typedWindows(window)
	return func(layer int64) int64 { return windows[layer] }, err
}

func (c *decoderConfig) typedWindows(window int64) ([]int64, error) {
	if int64(len(c.LayerTypes)) != c.Layers {
		return nil, fmt.Errorf("layer_types names %d layers, num_hidden_layers is %d", len(c.LayerTypes), c.Layers)
	}
	windows := make([]int64, c.Layers)
	for i, kind := range c.LayerTypes {
		switch {
		case kind == "sliding_attention" && window == 0:
			return nil, fmt.Errorf("layer %d has sliding_attention, but sliding_window is off", i)
		case kind == "sliding_attention":
			windows[i] = window
		case kind != "full_attention":
			return nil, fmt.Errorf("layer %d has attention %q, want full_attention or sliding_attention", i, kind)
		}
	}
	return windows, nil
}
