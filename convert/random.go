package convert

import (
	"context"
	"fmt"
	"time"

	"spillway/arch"
	"spillway/hf"
	"spillway/weights"
)

// Random writes a new model folder with random initial weights of the config's type. They
// start as the architecture says, from the seed: the same seed gives the same weights,
// whatever the shard size and the machine. Of the options it takes ShardBytes, Offloaded,
// Disk and Progress. The folder must not exist; after an error it does not.
func Random(ctx context.Context, config *hf.Config, dir string, seed uint64, o Options) (Result, error) {
	start := time.Now()
	if !config.Type.IsPlain() {
		return Result{}, fmt.Errorf("weights cannot start as %v; use f32, bf16 or f16", config.Type)
	}
	net, _, err := arch.New(config)
	if err != nil {
		return Result{}, err
	}
	params, err := paramsOf(net)
	if err != nil {
		return Result{}, err
	}
	r := Result{Tensors: len(params), Changed: len(params)}
	for i := range params {
		params[i].Type.DType = config.Type
		r.Params += params[i].Type.Shape.Elements()
	}
	from, err := weights.Random(params, seed)
	if err != nil {
		return Result{}, err
	}
	err = o.write(ctx, hf.Model{Config: config, Tensors: weights.Outputs(params, from)}, dir, &r)
	r.Took = time.Since(start)
	return r, err
}
