package stored

import (
	"fmt"
	"strings"

	"spillway/dtype"
	"spillway/quant"
	"spillway/shape"
	"spillway/tensorfile"
)

// scaleSuffix is where compressed-tensors stores the scale of each row, next to codes that
// are 8-bit floats under the weight's own name.
const scaleSuffix = "_scale"

const compressedTensors = "compressed-tensors"

func init() {
	layouts = append(layouts, layout{
		types: []dtype.Type{quant.RowF8}, library: compressedTensors, collect: collectFP8, outputs: Weight.fp8, config: newCompressed,
	})
}

func collectFP8(c *collector, scales tensorfile.Tensor) (Tensor, error) {
	name, ok := strings.CutSuffix(scales.Name, scaleSuffix)
	if !ok || !strings.HasSuffix(name, weightSuffix) {
		return Tensor{}, nil
	}
	codes, err := c.take(name)
	if err != nil {
		return Tensor{}, err
	}
	if codes.Type != dtype.F8E4M3 || len(codes.Shape) != 2 || scales.Shape.Elements() != codes.Shape[0] {
		return Tensor{}, fmt.Errorf("it is %v%v with scales %v%v, want f8e4m3 with a scale for each row", codes.Type, codes.Shape, scales.Type, scales.Shape)
	}
	c.mark(scales)
	r := &rows{quant.RowF8, codes, make([]float32, codes.Shape[0])}
	return r.tensor(), scales.ReadF32(r.scales, 0) // in any plain type
}

func (w Weight) fp8(Options) ([]tensorfile.Output, error) {
	_, codes, scales, err := w.rowOutputs(quant.RowF8)
	if err != nil {
		return nil, err
	}
	return []tensorfile.Output{
		{Name: w.Name, Type: dtype.F8E4M3, Shape: w.Shape, Write: codes},
		{Name: w.Name + scaleSuffix, Type: dtype.F32, Shape: shape.Shape{w.Shape[0], 1}, Write: scales, After: w.Name},
	}, nil
}

// compressed is what compressed-tensors wants to know of 8-bit floats by rows, with
// activations that are left as they are.
type compressed struct {
	Groups map[string]compressedGroup `json:"config_groups"`
	Format string                     `json:"format"`
	Ignore []string                   `json:"ignore"`
	Method string                     `json:"quant_method"`
	Status string                     `json:"quantization_status"`
}

type compressedGroup struct {
	Targets []string          `json:"targets"`
	Weights compressedWeights `json:"weights"`
}

type compressedWeights struct {
	Bits      int    `json:"num_bits"`
	Type      string `json:"type"`
	Strategy  string `json:"strategy"`
	Symmetric bool   `json:"symmetric"`
	Dynamic   bool   `json:"dynamic"`
}

func newCompressed(o Options) any {
	weights := compressedWeights{Bits: 8, Type: "float", Strategy: "channel", Symmetric: true}
	return compressed{
		Groups: map[string]compressedGroup{"group_0": {[]string{"Linear"}, weights}},
		Format: "naive-quantized", Ignore: append([]string{o.Head}, o.Skip...), Method: compressedTensors, Status: "compressed",
	}
}
