package spillway_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spillway"
	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
	"spillway/safetensors"
)

// Small networks for images and tokens, trained for ten iterations as PyTorch does (tools/reference/networks.py),
// and with the same bits where memory is less than half of what they need.
func TestNetworksTrainAsTorch(t *testing.T) {
	for name, net := range map[string]func() nn.Model{"resnet": newSmallResNet, "convnext": newSmallConvNeXt, "unet": newSmallUNet, "average": newAverage, "tagger": newTagger, "volume": newVolume, "bags": newBags, "relative": newRelative, "wavenet": newWaveNet, "graph": newGraphNet, "translator": newTranslator, "experts": newExperts} {
		t.Run(name, func(t *testing.T) {
			file := readNetwork(t, name)
			c := described(t)
			c.Strategy, c.MicroBatches = "standard", 1
			c.Optimizer, _ = optim.Parse("sgd:lr=0.05,momentum=0.9,weight_decay=0")
			losses, peak, end := file.train(t, net(), c)
			file.agrees(t, losses, end)
			c.Strategy, c.MaxMemory = "", fmt.Sprint(peak*48/100)
			again, less, streamed := file.train(t, net(), c)
			if less > peak*48/100 {
				t.Errorf("%d bytes within %d", less, peak*48/100)
			}
			if fmt.Sprint(again) != fmt.Sprint(losses) || !sameDict(end, streamed) {
				t.Errorf("other bits in less than half of the memory: losses %v, then %v", losses, again)
			}
		})
	}
}

// network is the tensors of a file that networks.py wrote.
type network map[string]spillway.Tensor

func readNetwork(t *testing.T, name string) network {
	t.Helper()
	f, err := safetensors.Open(filepath.Join("testdata", "reference", "networks", name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := network{}
	for _, tensor := range f.Tensors() {
		raw := make([]byte, tensor.Bytes)
		if _, err := tensor.ReadAt(raw, 0); err != nil {
			t.Fatal(err)
		}
		if tensor.Type == dtype.I64 {
			ints := make([]int32, len(raw)/8)
			for i := range ints {
				ints[i] = int32(binary.LittleEndian.Uint64(raw[8*i:]))
			}
			n[tensor.Name] = spillway.Ints(ints, tensor.Shape...)
			continue
		}
		floats := make([]float32, len(raw)/4)
		dtype.F32.Decode(floats, raw)
		n[tensor.Name] = spillway.Floats(floats, tensor.Shape...)
	}
	return n
}

// train gives ten losses and one that is evaluated, the memory that the device took, and the weights.
func (n network) train(t *testing.T, net nn.Model, c spillway.Config) (losses []float64, peak int64, end spillway.StateDict) {
	t.Helper()
	w := n.started(t, net, c)
	b := spillway.Batch{"input": n["input"], "targets": n["target"]}
	if n["input"].Ints != nil {
		b["tokens"] = n["input"]
		delete(b, "input")
	}
	if n["target"].Floats != nil {
		b["target"] = n["target"]
		delete(b, "targets")
	}
	losses = step(t, w, b, 10)
	peak = w.MemoryStats().Devices[0].Peak
	end = stateDict(t, w)
	loss, err := w.Evaluate(b)
	if err != nil {
		t.Fatal(err)
	}
	return append(losses, loss), peak, end
}

// started is a network with the weights that PyTorch's had.
func (n network) started(t *testing.T, net nn.Model, c spillway.Config) *spillway.Wrapped {
	t.Helper()
	start := spillway.StateDict{}
	for name, tensor := range n {
		if param, is := strings.CutPrefix(name, "start."); is {
			start[param] = tensor
		}
	}
	w := wrap(t, net, c)
	if err := w.LoadStateDict(start); err != nil {
		t.Fatal(err)
	}
	return w
}

// agrees compares losses, and the state after them, with PyTorch's.
func (n network) agrees(t *testing.T, losses []float64, end spillway.StateDict) {
	t.Helper()
	for i, want := range n["losses"].Floats {
		if off := math.Abs(losses[i] - float64(want)); !(off <= 1e-5*max(1, float64(want))) {
			t.Errorf("loss %d is %.7f, PyTorch's %.7f", i, losses[i], want)
		}
	}
	for param, got := range end {
		for i, want := range n["end."+param].Floats {
			if off := math.Abs(float64(got.Floats[i] - want)); !(off <= 2e-5) {
				t.Errorf("%s, element %d: %.7f, PyTorch's %.7f", param, i, got.Floats[i], want)
				break
			}
		}
	}
}

// chain is a model of blocks with names.
type chain []nn.Block

func (c *chain) add(name string, forward func(b *graph.Builder, in []graph.Value) []graph.Value) {
	*c = append(*c, nn.Block{Name: name, Forward: forward})
}

// one is a block of a value.
func one(f func(b *graph.Builder, x graph.Value) graph.Value) func(b *graph.Builder, in []graph.Value) []graph.Value {
	return func(b *graph.Builder, in []graph.Value) []graph.Value {
		x := graph.Value(0)
		if len(in) > 0 {
			x = in[0]
		}
		return []graph.Value{f(b, x)}
	}
}

// image is a batch of images in PyTorch's order, with channels last.
func image(b *graph.Builder, channels, size int64) graph.Value {
	return nn.ChannelsLast{}.Forward(b, nn.Input(b, channels, size, size))
}

type basicBlock struct {
	Conv1      *nn.Conv       `hf:"conv1"`
	BN1        *nn.BatchNorm  `hf:"bn1"`
	Conv2      *nn.Conv       `hf:"conv2"`
	BN2        *nn.BatchNorm  `hf:"bn2"`
	Downsample *nn.Sequential `hf:"downsample,optional"`
}

func newBasicBlock(in, out, stride int64) *basicBlock {
	l := &basicBlock{Conv1: nn.NewConv2d(in, out, 3).Strided(stride, 1).WithoutBias(), BN1: nn.NewBatchNorm(out),
		Conv2: nn.NewConv2d(out, out, 3).Strided(1, 1).WithoutBias(), BN2: nn.NewBatchNorm(out)}
	if stride > 1 {
		l.Downsample = nn.NewSequential(nn.NewConv2d(in, out, 1).Strided(stride, 0).WithoutBias(), nn.NewBatchNorm(out))
	}
	return l
}

func (l *basicBlock) Forward(b *graph.Builder, x graph.Value) graph.Value {
	y := nn.ReLU.Forward(b, l.BN1.Forward(b, l.Conv1.Forward(b, x)))
	y = l.BN2.Forward(b, l.Conv2.Forward(b, y))
	if l.Downsample != nil {
		x = l.Downsample.Forward(b, x)
	}
	return nn.ReLU.Forward(b, b.Add(y, x))
}

type smallResNet struct {
	Conv1  *nn.Conv      `hf:"conv1"`
	BN1    *nn.BatchNorm `hf:"bn1"`
	Layers []*basicBlock `hf:"layers"`
	Head   *nn.Linear    `hf:"fc"`
}

func newSmallResNet() nn.Model {
	return &smallResNet{nn.NewConv2d(3, 8, 3).Strided(1, 1).WithoutBias(), nn.NewBatchNorm(8),
		append(times(5, func() *basicBlock { return newBasicBlock(8, 8, 1) }), newBasicBlock(8, 16, 2)), nn.NewLinear(16, 5)}
}

func (m *smallResNet) Blocks() []nn.Block {
	var c chain
	c.add("stem", one(func(b *graph.Builder, _ graph.Value) graph.Value {
		x := nn.ReLU.Forward(b, m.BN1.Forward(b, m.Conv1.Forward(b, image(b, 3, 16))))
		return b.MaxPool(op.Spatial{Kernel: []int64{3, 3}, Stride: []int64{2, 2}, Padding: []int64{1, 1}}, x)
	}))
	for i, l := range m.Layers {
		c.add("layers."+strconv.Itoa(i), one(l.Forward))
	}
	c.add("fc", one(func(b *graph.Builder, x graph.Value) graph.Value {
		return nn.CrossEntropy.Forward(b, m.Head.Forward(b, b.Mean(x, 1, 2)))
	}))
	return c
}

type convNeXtBlock struct {
	Depthwise *nn.Conv      `hf:"dwconv"`
	Norm      *nn.LayerNorm `hf:"norm"`
	Up        *nn.Linear    `hf:"pwconv1"`
	Down      *nn.Linear    `hf:"pwconv2"`
	Gamma     *nn.Param     `hf:"gamma"`
}

func newConvNeXtBlock(width int64) *convNeXtBlock {
	return &convNeXtBlock{nn.NewConv(width, width, width, 7, 7).Strided(1, 3), nn.NewLayerNorm(width, 1e-6),
		nn.NewLinear(width, 4*width), nn.NewLinear(4*width, width), nn.NewParam(nn.Constant(0.3), width)}
}

func (l *convNeXtBlock) Forward(b *graph.Builder, x graph.Value) graph.Value {
	y := l.Up.Forward(b, l.Norm.Forward(b, l.Depthwise.Forward(b, x)))
	return b.Add(x, b.Mul(l.Down.Forward(b, nn.GELU.Forward(b, y)), l.Gamma.Value(b)))
}

type smallConvNeXt struct {
	Stem     *nn.Conv         `hf:"stem"`
	Norm     *nn.LayerNorm    `hf:"norm"`
	Layers   []*convNeXtBlock `hf:"blocks"`
	DownNorm *nn.LayerNorm    `hf:"down_norm"`
	Down     *nn.Conv         `hf:"down"`
	Layer    *convNeXtBlock   `hf:"block"`
	Head     *nn.Linear       `hf:"head"`
}

func newSmallConvNeXt() nn.Model {
	return &smallConvNeXt{nn.NewConv2d(3, 12, 4).Strided(4, 0), nn.NewLayerNorm(12, 1e-6), times(5, func() *convNeXtBlock { return newConvNeXtBlock(12) }),
		nn.NewLayerNorm(12, 1e-6), nn.NewConv2d(12, 16, 2).Strided(2, 0), newConvNeXtBlock(16), nn.NewLinear(16, 5)}
}

func (m *smallConvNeXt) Blocks() []nn.Block {
	var c chain
	c.add("stem", one(func(b *graph.Builder, _ graph.Value) graph.Value {
		return m.Norm.Forward(b, m.Stem.Forward(b, image(b, 3, 16)))
	}))
	for i, l := range m.Layers {
		c.add("blocks."+strconv.Itoa(i), one(l.Forward))
	}
	c.add("down", one(func(b *graph.Builder, x graph.Value) graph.Value { return m.Down.Forward(b, m.DownNorm.Forward(b, x)) }))
	c.add("block", one(m.Layer.Forward))
	c.add("head", one(func(b *graph.Builder, x graph.Value) graph.Value {
		return nn.CrossEntropy.Forward(b, m.Head.Forward(b, b.Mean(x, 1, 2)))
	}))
	return c
}

type smallUNet struct {
	Enc1  *nn.Conv          `hf:"enc1"`
	Norm1 *nn.GroupNorm     `hf:"norm1"`
	Enc2  *nn.Conv          `hf:"enc2"`
	Norm2 *nn.GroupNorm     `hf:"norm2"`
	Mid   []*nn.Conv        `hf:"mid"`
	Up    *nn.ConvTranspose `hf:"up"`
	Dec   *nn.Conv          `hf:"dec"`
	Norm3 *nn.GroupNorm     `hf:"norm3"`
	Out   *nn.Conv          `hf:"out"`
}

func newSmallUNet() nn.Model {
	m := &smallUNet{nn.NewConv2d(2, 8, 3).Strided(1, 1), nn.NewGroupNorm(2, 8), nn.NewConv2d(8, 16, 3).Strided(1, 1), nn.NewGroupNorm(4, 16),
		times(12, func() *nn.Conv { return nn.NewConv2d(16, 16, 3).Strided(1, 1) }), nn.NewConvTranspose(16, 8, 1, 2, 2), nn.NewConv2d(16, 8, 3).Strided(1, 1), nn.NewGroupNorm(2, 8), nn.NewConv2d(8, 2, 1)}
	m.Up.Stride = []int64{2, 2}
	return m
}

func (m *smallUNet) Blocks() []nn.Block {
	var c chain
	half := []int64{2, 2}
	c.add("enc1", one(func(b *graph.Builder, _ graph.Value) graph.Value {
		return nn.SiLU.Forward(b, m.Norm1.Forward(b, m.Enc1.Forward(b, image(b, 2, 12))))
	}))
	c.add("enc2", func(b *graph.Builder, in []graph.Value) []graph.Value {
		x := nn.MaxPool{Spatial: op.Spatial{Kernel: half}}.Forward(b, in[0])
		return []graph.Value{nn.SiLU.Forward(b, m.Norm2.Forward(b, m.Enc2.Forward(b, x))), b.Scale(in[0], 1)}
	})
	for i, mid := range m.Mid {
		c.add("mid."+strconv.Itoa(i), func(b *graph.Builder, in []graph.Value) []graph.Value {
			x := nn.AvgPool{Spatial: op.Spatial{Kernel: half}}.Forward(b, nn.LeakyReLU.Forward(b, mid.Forward(b, in[0])))
			return []graph.Value{b.Add(in[0], nn.Upsample{Scale: 2, Mode: op.Linear}.Forward(b, x)), b.Scale(in[1], 1)}
		})
	}
	c.add("dec", func(b *graph.Builder, in []graph.Value) []graph.Value {
		x := b.Concat(m.Up.Forward(b, in[0]), in[1])
		x = nn.SiLU.Forward(b, m.Norm3.Forward(b, m.Dec.Forward(b, x)))
		return []graph.Value{nn.MeanSquare.Forward(b, m.Out.Forward(b, x))}
	})
	return c
}

type average struct {
	Embed  *nn.Embedding `hf:"embed"`
	Hidden []*nn.Linear  `hf:"hidden"`
	Head   *nn.Linear    `hf:"head"`
}

func newAverage() nn.Model {
	return &average{nn.NewEmbedding(23, 12), times(8, func() *nn.Linear { return nn.NewLinear(12, 12) }), nn.NewLinear(12, 5)}
}

func (m *average) Blocks() []nn.Block {
	var c chain
	c.add("embed", one(func(b *graph.Builder, _ graph.Value) graph.Value { return b.Mean(m.Embed.Forward(b, nn.Tokens(b)), 1) }))
	for i, l := range m.Hidden {
		c.add("hidden."+strconv.Itoa(i), one(func(b *graph.Builder, x graph.Value) graph.Value { return nn.Tanh.Forward(b, l.Forward(b, x)) }))
	}
	c.add("head", one(func(b *graph.Builder, x graph.Value) graph.Value {
		return nn.CrossEntropy.Forward(b, m.Head.Forward(b, x))
	}))
	return c
}

// tagger gives each word a tag, by LSTMs in both directions and a GRU.
type tagger struct {
	Embed *nn.Embedding   `hf:"embed"`
	LSTM  *nn.Recurrent   `hf:"lstm"`
	More  []*nn.Recurrent `hf:"more"`
	GRU   *nn.Recurrent   `hf:"gru"`
	Head  *nn.Linear      `hf:"head"`
}

func newTagger() nn.Model {
	return &tagger{nn.NewEmbedding(23, 10), nn.NewLSTM(10, 12, 2, true), times(8, func() *nn.Recurrent { return nn.NewLSTM(24, 12, 1, true) }), nn.NewGRU(24, 8, 1, false), nn.NewLinear(8, 5)}
}

func (m *tagger) Blocks() []nn.Block {
	var c chain
	c.add("embed", one(func(b *graph.Builder, _ graph.Value) graph.Value { return m.Embed.Forward(b, nn.Tokens(b)) }))
	c.add("lstm", one(m.LSTM.Forward))
	for i, l := range m.More {
		c.add("more."+strconv.Itoa(i), one(func(b *graph.Builder, x graph.Value) graph.Value { return b.Add(x, l.Forward(b, x)) }))
	}
	c.add("gru", one(m.GRU.Forward))
	c.add("head", one(func(b *graph.Builder, x graph.Value) graph.Value {
		return nn.CrossEntropy.Forward(b, m.Head.Forward(b, x))
	}))
	return c
}

type volume struct {
	Conv3  *nn.Conv           `hf:"conv3"`
	Slope  *nn.PReLU          `hf:"slope"`
	Conv1  *nn.Conv           `hf:"conv1"`
	RNN    *nn.Recurrent      `hf:"rnn"`
	Cross  *nn.CrossAttention `hf:""`
	Hidden []*nn.Linear       `hf:"hidden"`
	Head   *nn.Linear         `hf:"head"`
}

func newVolume() nn.Model {
	return &volume{nn.NewConv3d(2, 4, 3).Strided(1, 1), nn.NewPReLU(4), nn.NewConv1d(4, 6, 3).Strided(1, 1), nn.NewRNN(6, 8, 1, false), nn.NewCrossAttention(8, 6, 2),
		times(12, func() *nn.Linear { return nn.NewLinear(48, 48) }), nn.NewLinear(48, 5)}
}

func (m *volume) Blocks() []nn.Block {
	var c chain
	c.add("conv", one(func(b *graph.Builder, _ graph.Value) graph.Value {
		x := nn.ChannelsLast{}.Forward(b, nn.Input(b, 2, 4, 6, 6))
		x = nn.NewInstanceNorm(4).Forward(b, m.Slope.Forward(b, m.Conv3.Forward(b, x)))
		x = b.Reshape(nn.AdaptiveMaxPool{2, 3, 3}.Forward(b, x), b.MicroBatchSize, 18, 4)
		return m.Conv1.Forward(b, x)
	}))
	c.add("attention", one(func(b *graph.Builder, other graph.Value) graph.Value {
		x := m.RNN.Forward(b, nn.AdaptiveAvgPool{6}.Forward(b, other))
		x = b.Add(x, m.Cross.Forward(b, x, other, 0, 0))
		x = b.Add(nn.Softmax(1).Forward(b, x), b.Scale(nn.LogSoftmax(-1).Forward(b, x), 0.1))
		return nn.Flatten{}.Forward(b, nn.ChannelsFirst{}.Forward(b, x))
	}))
	for i, l := range m.Hidden {
		c.add("hidden."+strconv.Itoa(i), one(func(b *graph.Builder, x graph.Value) graph.Value {
			return b.Add(x, nn.Tanh.Forward(b, l.Forward(b, x)))
		}))
	}
	c.add("head", one(func(b *graph.Builder, x graph.Value) graph.Value {
		return nn.CrossEntropy.Forward(b, m.Head.Forward(b, x))
	}))
	return c
}

type bags struct {
	Bag    *nn.EmbeddingBag `hf:"bag"`
	Hidden []*nn.Linear     `hf:"hidden"`
	Head   *nn.Linear       `hf:"head"`
}

func newBags() nn.Model {
	return &bags{nn.NewEmbeddingBag(23, 12), times(8, func() *nn.Linear { return nn.NewLinear(12, 12) }), nn.NewLinear(12, 5)}
}

func (m *bags) Blocks() []nn.Block {
	var c chain
	c.add("bag", one(func(b *graph.Builder, _ graph.Value) graph.Value { return m.Bag.Forward(b, nn.Tokens(b)) }))
	for i, l := range m.Hidden {
		c.add("hidden."+strconv.Itoa(i), one(func(b *graph.Builder, x graph.Value) graph.Value { return nn.Tanh.Forward(b, l.Forward(b, x)) }))
	}
	c.add("head", one(func(b *graph.Builder, x graph.Value) graph.Value {
		return nn.CrossEntropy.Forward(b, m.Head.Forward(b, x))
	}))
	return c
}

// biased is attention with a bias for each distance, as T5 has it, and a slope for each head, as ALiBi has it.
type biased struct {
	Norm   *nn.LayerNorm      `hf:"norm"`
	Cross  *nn.CrossAttention `hf:""`
	Bias   *nn.RelativeBias   `hf:"relative_attention_bias.weight"`
	Slopes *nn.Param          `hf:"slopes"`
}

func (l *biased) Forward(b *graph.Builder, x graph.Value) graph.Value {
	words := b.Seq
	distance := make([]float32, words*words)
	for i := range distance {
		distance[i] = float32(math.Abs(float64(int64(i)/words - int64(i)%words)))
	}
	slopes := b.Reshape(l.Slopes.Value(b), 2, 1, 1)
	bias := b.Sub(l.Bias.Forward(b, words, words), b.Times(slopes, b.Floats("distance", distance, words, words)))
	y := l.Norm.Forward(b, x)
	return b.Add(x, l.Cross.Forward(b, y, y, bias, 0))
}

type relative struct {
	Embed  *nn.Embedding `hf:"embed"`
	Layers []*biased     `hf:"layers"`
	Mix    *nn.Param     `hf:"mix"`
	Head   *nn.Linear    `hf:"head"`
}

func newRelative() nn.Model {
	return &relative{nn.NewEmbedding(23, 12), times(6, func() *biased {
		return &biased{nn.NewLayerNorm(12, 1e-5), nn.NewCrossAttention(12, 12, 2), nn.NewRelativeBias(8, 2, nn.T5Buckets(true, 8, 6)), nn.NewParam(nn.Constant(0.5), 2)}
	}), nn.NewParam(nn.Normal(0.3), 9, 9), nn.NewLinear(12, 5)}
}

func (m *relative) Blocks() []nn.Block {
	var c chain
	c.add("embed", one(func(b *graph.Builder, _ graph.Value) graph.Value { return m.Embed.Forward(b, nn.Tokens(b)) }))
	for i, l := range m.Layers {
		c.add("layers."+strconv.Itoa(i), one(l.Forward))
	}
	c.add("head", one(func(b *graph.Builder, x graph.Value) graph.Value {
		weights := b.Softmax(b.Scale(b.BatchMatMul(x, x, false, true), 0.3), -1)
		mix := b.Slice(b.Slice(m.Mix.Value(b), 0, 0, b.Seq, 1), 1, 0, b.Seq, 1)
		x = b.Add(x, b.BatchMatMul(weights, b.BatchMatMul(mix, x, false, false), false, false))
		return nn.CrossEntropy.Forward(b, m.Head.Forward(b, b.Mean(x, 1)))
	}))
	return c
}

type waveNet struct {
	Embed  *nn.Embedding `hf:"embed"`
	Filter []*nn.Conv    `hf:"filter"`
	Gate   []*nn.Conv    `hf:"gate"`
	Sum    []*nn.Conv    `hf:"sum"`
	Skip   []*nn.Conv    `hf:"skip"`
	Head   *nn.Conv      `hf:"head"`
}

func newWaveNet() nn.Model {
	dilated := func() (list []*nn.Conv) {
		for i := range 8 {
			c := nn.NewConv1d(8, 8, 2)
			c.Dilation = []int64{1 << (i % 3)}
			list = append(list, c)
		}
		return list
	}
	return &waveNet{nn.NewEmbedding(23, 8), dilated(), dilated(), times(8, func() *nn.Conv { return nn.NewConv1d(8, 8, 1) }), times(8, func() *nn.Conv { return nn.NewConv1d(8, 12, 1) }), nn.NewConv1d(12, 5, 1)}
}

func (m *waveNet) Blocks() []nn.Block {
	var c chain
	c.add("embed", one(func(b *graph.Builder, _ graph.Value) graph.Value { return m.Embed.Forward(b, nn.Tokens(b)) }))
	for i := range m.Filter {
		c.add("layers."+strconv.Itoa(i), func(b *graph.Builder, in []graph.Value) []graph.Value {
			y := b.Pad(in[0], 1, 1<<(i%3), 0)
			y = b.Mul(nn.Tanh.Forward(b, m.Filter[i].Forward(b, y)), nn.Sigmoid.Forward(b, m.Gate[i].Forward(b, y)))
			skip := m.Skip[i].Forward(b, y)
			if i > 0 {
				skip = b.Add(in[1], skip)
			}
			return []graph.Value{b.Add(in[0], m.Sum[i].Forward(b, y)), skip}
		})
	}
	c.add("head", func(b *graph.Builder, in []graph.Value) []graph.Value {
		return []graph.Value{nn.CrossEntropy.Forward(b, m.Head.Forward(b, nn.ReLU.Forward(b, in[1])))}
	})
	return c
}

type graphNet struct {
	Into   *nn.Linear   `hf:"into"`
	Layers []*nn.Linear `hf:"layers"`
	Scores []*nn.Param  `hf:"scores"`
	Head   *nn.Linear   `hf:"head"`
}

func newGraphNet() nn.Model {
	return &graphNet{nn.NewLinear(5, 8), times(8, func() *nn.Linear { return nn.NewLinear(8, 8) }), times(8, func() *nn.Param { return nn.NewParam(nn.Normal(0.3), 16) }), nn.NewLinear(8, 5)}
}

func (m *graphNet) Blocks() []nn.Block {
	var c chain
	c.add("into", one(func(b *graph.Builder, _ graph.Value) graph.Value {
		return nn.ReLU.Forward(b, m.Into.Forward(b, nn.Input(b, 6, 5)))
	}))
	for i, l := range m.Layers {
		c.add("layers."+strconv.Itoa(i), one(func(b *graph.Builder, x graph.Value) graph.Value {
			from, to := b.Integers("source", []int32{0, 1, 2, 3, 4, 5, 5, 1, 0, 3}), b.Integers("to", []int32{1, 2, 1, 1, 0, 0, 2, 5, 4, 5})
			y := l.Forward(b, x)
			source := b.IndexSelect(y, 1, from)
			score := b.Sum(b.Mul(b.Concat(source, b.IndexSelect(y, 1, to)), m.Scores[i].Value(b)), -1)
			weight := b.Unary(op.Exp, b.Map(op.LeakyReLU, 0.2, 0, score))
			part := b.Div(weight, b.IndexSelect(b.IndexAdd(weight, 1, to, 6), 1, to))
			return b.Add(x, nn.ELU.Forward(b, b.IndexAdd(b.Mul(source, b.Reshape(part, -1, 10, 1)), 1, to, 6)))
		}))
	}
	c.add("head", one(func(b *graph.Builder, x graph.Value) graph.Value {
		best, _ := b.TopK(m.Head.Forward(b, x), 1, 2)
		return nn.CrossEntropy.Forward(b, b.Mean(best, 1))
	}))
	return c
}

type translator struct {
	Embed   *nn.Embedding                 `hf:"embed"`
	Encoder []*nn.TransformerEncoderLayer `hf:"encoder"`
	Decoder []*nn.TransformerDecoderLayer `hf:"decoder"`
	Head    *nn.Linear                    `hf:"head"`
}

func newTranslator() nn.Model {
	c := nn.EncoderConfig{Width: 12, Heads: 2, Inner: 20, Eps: 1e-5, Func: nn.GELU}
	m := &translator{Embed: nn.NewEmbedding(23, 12), Encoder: times(3, func() *nn.TransformerEncoderLayer { return nn.NewTransformerEncoderLayer(c) }), Head: nn.NewLinear(12, 5)}
	c.Func, c.Masks.Causal = nn.ReLU, true
	for i := range 4 {
		c.NormFirst = i > 0
		m.Decoder = append(m.Decoder, nn.NewTransformerDecoderLayer(c))
	}
	return m
}

func (m *translator) Blocks() []nn.Block {
	var c chain
	words := func(b *graph.Builder) graph.Value { return b.Part("tokens", dtype.I32, b.MicroBatchSize, 9) }
	source := func(b *graph.Builder) graph.Value { return b.Slice(words(b), 1, 0, 4, 1) }
	c.add("source", one(func(b *graph.Builder, _ graph.Value) graph.Value { return m.Embed.Forward(b, source(b)) }))
	for i, l := range m.Encoder {
		c.add("encoder."+strconv.Itoa(i), one(func(b *graph.Builder, x graph.Value) graph.Value {
			return l.ForwardMasked(b, x, graph.AttentionMasks{KeyMask: source(b)})
		}))
	}
	c.add("target", func(b *graph.Builder, in []graph.Value) []graph.Value {
		return []graph.Value{m.Embed.Forward(b, b.Slice(words(b), 1, 4, 9, 1)), in[0]}
	})
	for i, l := range m.Decoder {
		c.add("decoder."+strconv.Itoa(i), func(b *graph.Builder, in []graph.Value) []graph.Value {
			return []graph.Value{l.Forward(b, in[0], in[1], graph.AttentionMasks{}, graph.AttentionMasks{KeyMask: source(b)}), in[1]}
		})
	}
	c.add("head", one(func(b *graph.Builder, x graph.Value) graph.Value {
		return nn.CrossEntropy.Forward(b, m.Head.Forward(b, x))
	}))
	return c
}

type expertNet struct {
	Embed   *nn.Embedding `hf:"embed"`
	Routers []*nn.Linear  `hf:"routers"`
	Up      []*nn.Param   `hf:"up"`
	Down    []*nn.Param   `hf:"down"`
	Head    *nn.Linear    `hf:"head"`
}

func newExperts() nn.Model {
	stacked := func(in, out int64) []*nn.Param {
		return times(6, func() *nn.Param { return nn.NewParam(nn.Normal(0.3), 4, in, out) })
	}
	return &expertNet{nn.NewEmbedding(23, 8), times(6, func() *nn.Linear { return nn.NewLinear(8, 4) }), stacked(8, 12), stacked(12, 8), nn.NewLinear(8, 5)}
}

// layer gives x with what two experts make of it, and how unevenly the words of the batch are shared out.
func (m *expertNet) layer(b *graph.Builder, i int, x graph.Value) (y, balance graph.Value) {
	p := b.Softmax(m.Routers[i].Forward(b, x), -1)
	top, ids := b.TopK(p, -1, 2)
	gates := b.ScatterAdd(b.Div(top, b.Reduce(op.ReduceSum, top, true, -1)), -1, ids, 4)
	each := nn.GELU.Forward(b, b.BatchMatMul(b.Reshape(x, -1, 1, b.Seq, 8), m.Up[i].Value(b), false, false)) // [B experts T 12]
	each = b.BatchMatMul(each, m.Down[i].Value(b), false, false)
	share := b.Mean(b.Sum(b.OneHot(ids, 4), 2), 0, 1)
	balance = b.Scale(b.Sum(b.Mul(share, b.Mean(p, 0, 1))), 0.1*4)
	return b.Add(x, b.Sum(b.Mul(each, b.Reshape(b.Transpose(gates, 1, 2), -1, 4, b.Seq, 1)), 1)), balance
}

func (m *expertNet) Blocks() []nn.Block {
	var c chain
	c.add("embed", one(func(b *graph.Builder, _ graph.Value) graph.Value { return m.Embed.Forward(b, nn.Tokens(b)) }))
	for i := range m.Routers {
		c.add("layers."+strconv.Itoa(i), func(b *graph.Builder, in []graph.Value) []graph.Value {
			x, balance := m.layer(b, i, in[0])
			if i > 0 {
				balance = b.Add(balance, in[1])
			}
			return []graph.Value{x, balance}
		})
	}
	c.add("head", func(b *graph.Builder, in []graph.Value) []graph.Value {
		return []graph.Value{b.Add(nn.CrossEntropy.Forward(b, m.Head.Forward(b, in[0])), in[1])}
	})
	return c
}

// carried is a model whose blocks pass integers on, as they are.
type carried struct {
	Embed  *nn.Embedding `hf:"embed"`
	Hidden *nn.Linear    `hf:"hidden"`
	again  bool          // the last block reads the tokens again instead
}

func (m *carried) Blocks() []nn.Block {
	var c chain
	c.add("embed", func(b *graph.Builder, _ []graph.Value) []graph.Value {
		return []graph.Value{m.Embed.Forward(b, nn.Tokens(b)), nn.Tokens(b)}
	})
	c.add("hidden", func(b *graph.Builder, in []graph.Value) []graph.Value {
		return []graph.Value{m.Hidden.Forward(b, in[0]), in[1]}
	})
	c.add("loss", func(b *graph.Builder, in []graph.Value) []graph.Value {
		if m.again {
			in[1] = nn.Tokens(b)
		}
		even := b.Unary(op.Square, b.Unary(op.Sin, b.Scale(b.Cast(in[1], dtype.F32), math.Pi/2)))
		return []graph.Value{nn.Mean(b, b.Mul(b.Unary(op.Square, b.Mean(in[0], -1)), even))}
	})
	return c
}

func TestIntegersPassFromBlockToBlock(t *testing.T) {
	tokens := spillway.Batch{"tokens": spillway.Ints([]int32{1, 2, 3, 4, 5, 6}, 2, 3)}
	passed := step(t, wrap(t, &carried{nn.NewEmbedding(7, 4), nn.NewLinear(4, 4), false}, described(t)), tokens, 3)
	if again := step(t, wrap(t, &carried{nn.NewEmbedding(7, 4), nn.NewLinear(4, 4), true}, described(t)), tokens, 3); fmt.Sprint(again) != fmt.Sprint(passed) || passed[0] == passed[2] {
		t.Errorf("losses %v, with tokens read again %v", passed, again)
	}
}

// helped has a head that only training uses.
type helped struct {
	Hidden *nn.Linear `hf:"hidden"`
	Helper *nn.Linear `hf:"helper"`
	Head   *nn.Linear `hf:"head"`
}

func newHelped() *helped {
	return &helped{nn.NewLinear(6, 5), nn.NewLinear(5, 3), nn.NewLinear(5, 3)}
}

func (m *helped) Blocks() []nn.Block {
	var c chain
	c.add("hidden", one(func(b *graph.Builder, _ graph.Value) graph.Value {
		return nn.ReLU.Forward(b, m.Hidden.Forward(b, nn.Input(b, 6)))
	}))
	c.add("head", one(func(b *graph.Builder, x graph.Value) graph.Value {
		y := nn.CrossEntropy.Forward(b, m.Head.Forward(b, x))
		if b.Task == graph.Infer {
			return y
		}
		return b.Add(y, b.Scale(nn.CrossEntropy.Forward(b, m.Helper.Forward(b, x)), 0.3))
	}))
	return c
}

// A model that does not use all of its params for inference runs all the same, and reads weights that have them.
func TestHeadsForTrainingOnly(t *testing.T) {
	c := described(t)
	w := wrap(t, newHelped(), c)
	in := spillway.Batch{"input": normal(rand.New(rand.NewPCG(1, 1)), 4, 6)}
	step(t, w, spillway.Batch{"input": in["input"], "targets": spillway.Ints([]int32{0, 1, 2, 0}, 4)}, 2)
	want := forward(t, w, in)
	dir := filepath.Join(t.TempDir(), "helped")
	if err := w.Save(dir); err != nil {
		t.Fatal(err)
	}
	c.Task = spillway.Infer
	for from, load := range map[string]func(w *spillway.Wrapped) error{
		"a folder": func(w *spillway.Wrapped) error { return w.Load(dir) },
		"a dict":   func(other *spillway.Wrapped) error { return other.LoadStateDict(stateDict(t, w)) },
	} {
		only := wrap(t, newHelped(), c)
		if err := load(only); err != nil {
			t.Errorf("from %s: %v", from, err)
		} else if got := forward(t, only, in); !slices.Equal(got.Floats, want.Floats) {
			t.Errorf("from %s: %v, want %v", from, got.Floats, want.Floats)
		}
	}
}

// moved looks ids up that were reshaped, repeated, cut and joined before.
type moved struct {
	First  *nn.Embedding `hf:"first"`  // 4 rows
	Second *nn.Embedding `hf:"second"` // 9 rows
}

func (m *moved) Blocks() []nn.Block {
	var c chain
	c.add("all", one(func(b *graph.Builder, _ graph.Value) graph.Value {
		ids := b.Part("ids", dtype.I32, b.MicroBatchSize, 3)
		columns := b.SplitAxis(ids, 1, 1, 2)
		nodes := b.Part("nodes", dtype.I32, b.MicroBatchSize, 2)
		x := b.Add(m.First.Forward(b, columns[0]), m.Second.Forward(b, b.Slice(columns[1], 1, 1, 2, 1)))
		y := b.Expand(x, b.MicroBatchSize, 2, 2)
		return nn.Mean(b, b.ScatterAdd(y, 1, b.Expand(b.Reshape(nodes, -1, 2, 1), b.MicroBatchSize, 2, 2), 5))
	}))
	return c
}

// sole is a model of one block without params.
type sole struct {
	forward func(b *graph.Builder, in []graph.Value) []graph.Value
}

func (s *sole) Blocks() []nn.Block { return []nn.Block{{Name: "sole", Forward: s.forward}} }

// Ids that the model does not know are refused, however they were moved before they are looked up, and where they stand in the batch;
// kernels would take other rows for them.
func TestMovedIDsAreChecked(t *testing.T) {
	for _, c := range []struct {
		ids   [3]int32
		nodes [2]int32
		want  string
	}{
		{[3]int32{3, 100, 8}, [2]int32{4, 0}, ""}, // the one in the middle is not looked up
		{[3]int32{4, 0, 8}, [2]int32{4, 0}, "ids: place 3 of micro-batch 0 holds 4, the model knows 0 to 3"},
		{[3]int32{3, 0, 9}, [2]int32{4, 0}, "ids: place 5 of micro-batch 0 holds 9, the model knows 0 to 8"},
		{[3]int32{3, 0, 8}, [2]int32{5, 0}, "nodes: place 2 of micro-batch 0 holds 5, the model knows 0 to 4"},
	} {
		conf := described(t)
		conf.MicroBatches = 1
		w := wrap(t, &moved{nn.NewEmbedding(4, 2), nn.NewEmbedding(9, 2)}, conf)
		_, err := w.Step(spillway.Batch{"ids": spillway.Ints(append([]int32{0, 0, 0}, c.ids[:]...), 2, 3), "nodes": spillway.Ints(append([]int32{0, 0}, c.nodes[:]...), 2, 2)})
		if err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("ids %v and nodes %v: %v, want %q", c.ids, c.nodes, err, c.want)
		}
	}
	constant := func(b *graph.Builder, x graph.Value) graph.Value {
		return nn.Mean(b, b.IndexAdd(nn.Input(b, 3), 1, b.Integers("groups", []int32{0, 2, 1}), 2))
	}
	if _, err := spillway.Wrap(&sole{one(constant)}, described(t)); err == nil || !strings.Contains(err.Error(), "constant groups has 2 at place 1, want 0 to 1") {
		t.Errorf("constant ids: %v", err)
	}
}

// times makes so many equal layers.
func times[L any](n int, layer func() L) (list []L) {
	for range n {
		list = append(list, layer())
	}
	return list
}

// passing hands ids of the batch, and ids that it computes, to a block that looks them up.
type passing struct {
	Table  *nn.Embedding `hf:"table"`  // 4 rows
	Scores *nn.Linear    `hf:"scores"` // of 6 classes
}

func (m *passing) Blocks() []nn.Block {
	return []nn.Block{
		{Name: "first", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
			ids := b.Part("ids", dtype.I32, b.MicroBatchSize, 3)
			x := b.Part("x", dtype.F32, b.MicroBatchSize, 6)
			return []graph.Value{b.Slice(ids, 1, 1, 3, 1), m.Scores.Forward(b, x), b.ArgMax(x, 1)}
		}},
		{Name: "second", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value { return in }},
		{Name: "third", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			rows := b.Add(b.Mean(m.Table.Forward(b, in[0]), 1), m.Table.Forward(b, in[2]))
			return []graph.Value{b.Add(nn.Mean(b, b.Power(rows, 2)), nn.Mean(b, b.Power(in[1], 2)))}
		}},
	}
}

// Ids that one block passes to another are looked at too. Those of the batch are refused before anything runs, and nothing is lost; those that
// the model has computed itself are an error of the op that reads them.
func TestPassedIDsAreChecked(t *testing.T) {
	batch := func(id int32, class int) spillway.Batch {
		x := make([]float32, 12)
		x[6+class] = 1
		return spillway.Batch{"ids": spillway.Ints([]int32{9, 0, 1, 7, 2, id}, 2, 3), "x": spillway.Floats(x, 2, 6)}
	}
	for _, strategy := range []string{"standard", "cpu-offload"} {
		conf := described(t)
		conf.Strategy, conf.MicroBatches = strategy, 1
		w := wrap(t, &passing{nn.NewEmbedding(4, 2), nn.NewLinear(6, 6)}, conf)
		for _, id := range []int32{4, -1, -100, 1 << 30} {
			if _, err := w.Step(batch(id, 3)); err == nil || !strings.HasSuffix(err.Error(), fmt.Sprintf("ids: place 5 of micro-batch 0 holds %d, the model knows 0 to 3", id)) {
				t.Errorf("id %d: %v", id, err)
			}
		}
		if _, err := w.Step(batch(3, 3)); err != nil {
			t.Fatalf("after refusals: %v", err)
		}
		_, err := w.Step(batch(3, 5))
		for _, want := range []string{"embedding of table.weight in block third", "networks_test.go:", "index out of range: place 1 of its ids [2] holds 5, want 0 to 3"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a class of 6 in a table of 4 rows: %v, want %q", err, want)
			}
		}
	}
}
