package spillway_test

import (
	"math"
	"strings"
	"testing"

	"spillway"
	"spillway/autograd"
	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
	"spillway/spec"
)

// Networks whose training is more than a loss (tools/reference/trained.py): buffers that follow what the network makes, an encoder that is the moving average of another, norms that are called twice, a
// penalty on gradients. Running statistics too are PyTorch's.
func TestMoreThanALossTrainsAsTorch(t *testing.T) {
	for name, net := range map[string]func() nn.Model{"codebook": newCodebook, "twins": newTwins, "critic": newCritic} {
		t.Run(name, func(t *testing.T) {
			file := readNetwork(t, name)
			c := described(t)
			c.Strategy = "standard"
			lr := "0.05"
			if name == "critic" { // the length of a gradient is far from 1 at first
				lr = "0.005"
			}
			c.Optimizer, _ = optim.Parse("sgd:momentum=0.9,weight_decay=0,lr=" + lr)
			losses, peak, end := file.trainParts(t, net(), c)
			file.agrees(t, losses, end)
			c.Strategy, c.MaxMemory = "cpu-offload", "1GiB"
			if _, less, streamed := file.trainParts(t, net(), c); less > peak || !sameDict(end, streamed) {
				t.Errorf("weights stream in %d bytes of %d, with other bits: %v", less, peak, !sameDict(end, streamed))
			}
		})
	}
}

// trainParts is train with batches of any names.
func (n network) trainParts(t *testing.T, net nn.Model, c spillway.Config) (losses []float64, peak int64, end spillway.StateDict) {
	t.Helper()
	b := spillway.Batch{}
	for name, tensor := range n {
		if part, is := strings.CutPrefix(name, "batch."); is {
			b[part] = tensor
		}
	}
	w := n.started(t, net, c)
	losses = step(t, w, b, 10)
	return losses, w.MemoryStats().Devices[0].Peak, stateDict(t, w)
}

type codebook struct {
	Enc  *nn.Linear `hf:"enc"`
	Dec  *nn.Linear `hf:"dec"`
	Book *nn.Param  `hf:"codebook"`
	Size *nn.Param  `hf:"size"`
	Sum  *nn.Param  `hf:"sum"`
}

func newCodebook() nn.Model {
	return &codebook{nn.NewLinear(6, 8), nn.NewLinear(8, 6), nn.NewBuffer(nn.Normal(0.5), 1, 7, 8), nn.NewBuffer(nn.Constant(1), 0.1, 7), nn.NewBuffer(nn.Normal(0.5), 0.1, 7, 8)}
}

func (m *codebook) Blocks() []nn.Block {
	var c chain
	c.add("enc", one(func(b *graph.Builder, _ graph.Value) graph.Value {
		return m.Enc.Forward(b, b.Part("x", dtype.F32, b.MicroBatchSize, 6))
	}))
	c.add("codebook", func(b *graph.Builder, in []graph.Value) []graph.Value {
		b.NeedWholeBatch()
		z, book := in[0], m.Book.Value(b)
		distance := b.Sum(b.Unary(op.Square, b.Sub(b.Reshape(z, -1, 1, 8), book)), -1)
		ids := b.ArgMin(distance, -1)
		q, hot := b.Embedding(ids, book), b.OneHot(ids, 7)
		size, sum := m.Size.Follow(b, b.Sum(hot, 0)), m.Sum.Follow(b, b.BatchMatMul(hot, z, true, false))
		all := b.Sum(size)
		each := b.Mul(b.Div(b.PlusConstant(size, 1e-5), b.PlusConstant(all, 7e-5)), all)
		m.Book.Follow(b, b.Div(sum, b.Reshape(each, 7, 1)))
		return []graph.Value{b.Add(z, b.Detach(b.Sub(q, z))), b.Mean(nn.SquaredError(b, z, b.Detach(q)), -1)}
	})
	c.add("dec", func(b *graph.Builder, in []graph.Value) []graph.Value {
		off := b.Mean(nn.SquaredError(b, m.Dec.Forward(b, in[0]), b.Part("x", dtype.F32, b.MicroBatchSize, 6)), -1)
		return []graph.Value{nn.Mean(b, b.Add(off, b.Scale(in[1], 0.25)))}
	})
	return c
}

type twins struct {
	Online  *encoder   `hf:"online"`
	Target  *encoder   `hf:"target"`
	Predict *nn.Linear `hf:"predict"`
}

type encoder struct {
	Layers *nn.Sequential `hf:"layers"`
}

func newTwins() nn.Model {
	encoders := times(2, func() *encoder {
		return &encoder{nn.NewSequential(nn.NewLinear(6, 16), nn.NewBatchNorm(16), nn.ReLU, nn.NewLinear(16, 8))}
	})
	if err := nn.MovingAverage(encoders[1], encoders[0], 0.1); err != nil {
		panic(err)
	}
	return &twins{encoders[0], encoders[1], nn.NewLinear(8, 8)}
}

func (m *twins) Blocks() []nn.Block {
	var c chain
	c.add("encoders", func(b *graph.Builder, _ []graph.Value) (out []graph.Value) {
		b.NeedWholeBatch()
		x, y := b.Part("x", dtype.F32, b.MicroBatchSize, 6), b.Part("y", dtype.F32, b.MicroBatchSize, 6)
		for _, pair := range [][2]graph.Value{{x, y}, {y, x}} {
			out = append(out, m.Online.Layers.Forward(b, pair[0]), b.Detach(m.Target.Layers.Forward(b, pair[1])))
		}
		return out
	})
	c.add("loss", func(b *graph.Builder, in []graph.Value) []graph.Value {
		apart := func(online, target graph.Value) graph.Value {
			p := m.Predict.Forward(b, online)
			return b.PlusConstant(b.Scale(b.CosineSimilarity(p, target, -1, 1e-12), -2), 2)
		}
		return []graph.Value{nn.Mean(b, b.Add(apart(in[0], in[1]), apart(in[2], in[3])))}
	})
	return c
}

type critic struct {
	Conv1 *nn.Conv      `hf:"conv1"`
	Conv2 *nn.Conv      `hf:"conv2"`
	Norm  *nn.LayerNorm `hf:"norm"`
	FC1   *nn.Linear    `hf:"fc1"`
	FC2   *nn.Linear    `hf:"fc2"`
}

func newCritic() nn.Model {
	return &critic{nn.NewConv2d(1, 6, 3).Strided(2, 1), nn.NewConv2d(6, 8, 3).Strided(2, 1), nn.NewLayerNorm(32, 1e-5), nn.NewLinear(32, 12), nn.NewLinear(12, 1)}
}

func (m *critic) score(b *graph.Builder, x graph.Value) graph.Value {
	x = nn.SiLU.Forward(b, m.Conv2.Forward(b, b.Map(op.LeakyReLU, 0.2, 0, m.Conv1.Forward(b, x))))
	return m.FC2.Forward(b, nn.Tanh.Forward(b, m.FC1.Forward(b, m.Norm.Forward(b, b.Flatten(x, 1, -1)))))
}

func (m *critic) Blocks() []nn.Block {
	var c chain
	c.add("critic", one(func(b *graph.Builder, _ graph.Value) graph.Value {
		images := func(name string) graph.Value {
			return nn.ChannelsLast{}.Forward(b, b.Part(name, dtype.F32, b.MicroBatchSize, 1, 8, 8))
		}
		real, fake := images("real"), images("fake")
		share := b.Reshape(b.Part("share", dtype.F32, b.MicroBatchSize), -1, 1, 1, 1)
		between := b.Add(fake, b.Mul(b.Sub(real, fake), share))
		slope := autograd.Gradient(b, m.score(b, between), 0, between)[0]
		penalty := b.Scale(b.Unary(op.Square, b.PlusConstant(b.Norm(slope, 1, 2, 3), -1)), 10)
		return nn.Mean(b, b.Add(b.Reshape(b.Sub(m.score(b, fake), m.score(b, real)), -1), penalty))
	}))
	return c
}

// What a buffer follows is said once, in the block that reads it.
func TestBuffersThatCannotMove(t *testing.T) {
	for want, forward := range map[string]func(b *graph.Builder, p *nn.Param) graph.Value{
		"buffer mean is read and nothing moves it here": func(b *graph.Builder, p *nn.Param) graph.Value { return p.Value(b) },
		"follows two values": func(b *graph.Builder, p *nn.Param) graph.Value {
			p.Follow(b, b.Number(p.Value(b), 1))
			return p.Follow(b, b.Number(p.Value(b), 2))
		},
		"f32[1] and f32[2]": func(b *graph.Builder, p *nn.Param) graph.Value { return p.Follow(b, b.Number(p.Value(b), 1)) },
	} {
		m := &buffered{Mean: nn.NewBuffer(nn.Constant(0), 0.1, 1), Head: nn.NewLinear(2, 2), read: forward}
		if strings.HasPrefix(want, "f32") {
			m.Mean.Shape = []int64{2}
		}
		if _, err := spillway.Wrap(m, described(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// A norm that two blocks call moves its statistics by what two moves come to; a buffer that two blocks read is refused.
func TestStatisticsOfTwoBlocks(t *testing.T) {
	norm := nn.NewBatchNorm(2)
	m := &shared{Norm: norm, Head: nn.NewLinear(2, 2), call: norm.Forward}
	s, err := spec.Trace("shared", "shared", m, graph.Config{MicroBatchSize: 4, Seq: 1, DType: dtype.F32, Task: graph.Train})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Params {
		if is := strings.Contains(p.Name, "running"); is && math.Abs(p.Momentum-(1-0.9*0.9)/2) > 1e-12 || !is && p.Momentum != 0 {
			t.Errorf("%s moves by %v", p.Name, p.Momentum)
		}
	}
	mean := nn.NewBuffer(nn.Constant(0), 0.1, 2)
	m = &shared{Mean: mean, Head: nn.NewLinear(2, 2), call: func(b *graph.Builder, x graph.Value) graph.Value {
		return b.Add(x, mean.Follow(b, b.Mean(x, 0)))
	}}
	if _, err := spillway.Wrap(m, described(t)); err == nil || !strings.Contains(err.Error(), "buffer mean follows something here and in block first") {
		t.Errorf("a buffer of two blocks: %v", err)
	}
}

// shared is two blocks that call the same layer.
type shared struct {
	Norm *nn.BatchNorm `hf:"norm,optional"`
	Mean *nn.Param     `hf:"mean,optional"`
	Head *nn.Linear    `hf:"head"`
	call func(b *graph.Builder, x graph.Value) graph.Value
}

func (m *shared) Blocks() []nn.Block {
	var c chain
	c.add("first", one(func(b *graph.Builder, _ graph.Value) graph.Value { return m.call(b, m.Head.Forward(b, nn.Input(b, 2))) }))
	c.add("second", one(func(b *graph.Builder, x graph.Value) graph.Value { return nn.Mean(b, m.call(b, x)) }))
	return c
}

type buffered struct {
	Mean *nn.Param  `hf:"mean"`
	Head *nn.Linear `hf:"head"`
	read func(b *graph.Builder, p *nn.Param) graph.Value
}

func (m *buffered) Blocks() []nn.Block {
	var c chain
	c.add("all", one(func(b *graph.Builder, _ graph.Value) graph.Value {
		return nn.Mean(b, b.Sub(m.Head.Forward(b, nn.Input(b, 2)), m.read(b, m.Mean)))
	}))
	return c
}

// Inference and evaluation take batches of training: what only training reads is passed over, what nothing reads is not.
func TestBatchesOfTrainingServeAllTasks(t *testing.T) {
	w := wrap(t, newHelped(), described(t))
	b := spillway.Batch{"input": spillway.Floats(make([]float32, 24), 4, 6), "targets": spillway.Ints([]int32{0, 1, 2, 0}, 4)}
	if _, err := w.Forward(b); err != nil {
		t.Error(err)
	}
	b["target"] = b["targets"]
	for name, run := range map[string]func() error{
		"step":     func() error { _, err := w.Step(b); return err },
		"forward":  func() error { _, err := w.Forward(b); return err },
		"evaluate": func() error { _, err := w.Evaluate(b); return err },
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), `the batch has "target", which the model does not read here`) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
