// Package vision has networks for images as Go structs: a ResNet and a ViT. They read batch part "input"
// [B 3 H W], as PyTorch has images, and "targets" [B] of classes. Weights have the names of torchvision
// (ResNet) and timm (ViT).
package vision

import (
	"strconv"

	"spillway/graph"
	"spillway/nn"
	"spillway/op"
)

// images are the batch with channels last.
func images(b *graph.Builder, size int64) graph.Value {
	return nn.ChannelsLast{}.Forward(b, nn.Input(b, 3, size, size))
}

// block is a block of a model that maps one value to one.
func block(name string, f func(b *graph.Builder, x graph.Value) graph.Value) nn.Block {
	return nn.Block{Name: name, Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
		x := graph.Value(0)
		if len(in) > 0 {
			x = in[0]
		}
		return []graph.Value{f(b, x)}
	}}
}

// ResNet is a residual network of bottleneck blocks: torchvision's resnet50 and its larger relatives.
type ResNet struct {
	Conv1  *nn.Conv      `hf:"conv1"`
	Norm1  *nn.BatchNorm `hf:"bn1"`
	Layer1 []*Bottleneck `hf:"layer1"`
	Layer2 []*Bottleneck `hf:"layer2"`
	Layer3 []*Bottleneck `hf:"layer3"`
	Layer4 []*Bottleneck `hf:"layer4"`
	Head   *nn.Linear    `hf:"fc"`
	Size   int64         // of images
}

// NewResNet has so many blocks in each of four stages: 3, 4, 6, 3 is ResNet-50.
func NewResNet(size, classes int64, blocks ...int) *ResNet {
	m := &ResNet{Conv1: nn.NewConv2d(3, 64, 7).Strided(2, 3).WithoutBias(), Norm1: nn.NewBatchNorm(64), Size: size}
	in := int64(64)
	for i, stage := range []*[]*Bottleneck{&m.Layer1, &m.Layer2, &m.Layer3, &m.Layer4} {
		width, stride := int64(64)<<i, int64(2)
		if i == 0 {
			stride = 1
		}
		for range blocks[i] {
			*stage = append(*stage, NewBottleneck(in, width, stride))
			in, stride = 4*width, 1
		}
	}
	m.Head = nn.NewLinear(in, classes)
	return m
}

// NewResNet50 is ResNet-50 for images of 224 and 1000 classes.
func NewResNet50() *ResNet { return NewResNet(224, 1000, 3, 4, 6, 3) }

// Blocks are the stem, the bottlenecks, and the head.
func (m *ResNet) Blocks() []nn.Block {
	list := []nn.Block{block("stem", func(b *graph.Builder, _ graph.Value) graph.Value {
		x := nn.ReLU.Forward(b, m.Norm1.Forward(b, m.Conv1.Forward(b, images(b, m.Size))))
		return b.MaxPool(op.Spatial{Kernel: []int64{3, 3}, Stride: []int64{2, 2}, Padding: []int64{1, 1}}, x)
	})}
	for i, stage := range [][]*Bottleneck{m.Layer1, m.Layer2, m.Layer3, m.Layer4} {
		for k, l := range stage {
			list = append(list, block("layer"+strconv.Itoa(i+1)+"."+strconv.Itoa(k), l.Forward))
		}
	}
	return append(list, block("fc", func(b *graph.Builder, x graph.Value) graph.Value {
		return nn.CrossEntropy.Forward(b, m.Head.Forward(b, b.Mean(x, 1, 2)))
	}))
}

// Bottleneck is a residual block of three convolutions.
type Bottleneck struct {
	Conv1      *nn.Conv       `hf:"conv1"`
	Norm1      *nn.BatchNorm  `hf:"bn1"`
	Conv2      *nn.Conv       `hf:"conv2"`
	Norm2      *nn.BatchNorm  `hf:"bn2"`
	Conv3      *nn.Conv       `hf:"conv3"`
	Norm3      *nn.BatchNorm  `hf:"bn3"`
	Downsample *nn.Sequential `hf:"downsample,optional"`
}

// NewBottleneck makes four times as many channels as its inner convolution has.
func NewBottleneck(in, width, stride int64) *Bottleneck {
	l := &Bottleneck{
		Conv1: nn.NewConv2d(in, width, 1).WithoutBias(), Norm1: nn.NewBatchNorm(width),
		Conv2: nn.NewConv2d(width, width, 3).Strided(stride, 1).WithoutBias(), Norm2: nn.NewBatchNorm(width),
		Conv3: nn.NewConv2d(width, 4*width, 1).WithoutBias(), Norm3: nn.NewBatchNorm(4 * width),
	}
	if stride > 1 || in != 4*width {
		l.Downsample = nn.NewSequential(nn.NewConv2d(in, 4*width, 1).Strided(stride, 0).WithoutBias(), nn.NewBatchNorm(4*width))
	}
	return l
}

// Forward maps [B H W C] to the block's channels, at half the size where it has a stride.
func (l *Bottleneck) Forward(b *graph.Builder, x graph.Value) graph.Value {
	y := nn.ReLU.Forward(b, l.Norm1.Forward(b, l.Conv1.Forward(b, x)))
	y = nn.ReLU.Forward(b, l.Norm2.Forward(b, l.Conv2.Forward(b, y)))
	y = l.Norm3.Forward(b, l.Conv3.Forward(b, y))
	if l.Downsample != nil {
		x = l.Downsample.Forward(b, x)
	}
	return nn.ReLU.Forward(b, b.Add(y, x))
}
