package op_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
	"spillway/safetensors"
)

// The ops on tensors of any shape, convolutions, pooling and norms against PyTorch (tools/reference/tensors.py).
func TestTensorOpsAgreeWithTorch(t *testing.T) {
	var list struct{ Cases []torchCase }
	readJSON(t, "tensors.json", &list)
	file, err := safetensors.Open(filepath.Join(reference, "tensors.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range list.Cases {
		t.Run(c.Name, func(t *testing.T) {
			build, ok := tensorPrograms[c.Op]
			if !ok {
				t.Fatal("nothing of ours is compared")
			}
			tr := &trial{graph.NewBuilder(c.Name, graph.Config{Task: graph.Train, DType: dtype.F32}), c, file, t, values{}, nil, true}
			tr.compare(build(tr))
		})
	}
}

func mapped(f op.Func, alpha, beta float64) func(b *trial) graph.Value {
	return func(b *trial) graph.Value { return b.Map(f, alpha, beta, b.real("x")) }
}

func convolved(s op.Spatial) func(b *trial) graph.Value {
	return func(b *trial) graph.Value {
		x, w, bias := b.real("x"), b.real("w"), graph.Value(0)
		if b.Inputs["b"] != nil {
			bias = b.real("b")
		}
		return b.Conv(s, x, w, bias)
	}
}

func resized(r op.Resampling, corners bool) func(b *trial) graph.Value {
	return func(b *trial) graph.Value { return b.Interpolate(r, corners, b.real("x"), []int64{5, 11}, nil) }
}

func padded(mode graph.PadMode) func(b *trial) graph.Value {
	return func(b *trial) graph.Value { return b.Padded(mode, b.Padded(mode, b.real("x"), 1, 1, 3), 2, 2, 1) }
}

func multiplied(trans bool) func(b *trial) graph.Value {
	return func(b *trial) graph.Value { return b.BatchMatMul(b.real("x"), b.real("y"), trans, trans) }
}

func masked(causal bool) func(b *trial) graph.Value {
	return func(b *trial) graph.Value {
		a := op.Attr{Heads: 4, KVHeads: 2, Scale: 0.6, Causal: causal, Mask: true}
		return b.Apply(op.Attention, a, b.real("q"), b.real("k"), b.real("v"), b.real("mask"))[0]
	}
}

// layer is one of nn.
func layer(l nn.Layer) func(b *trial) graph.Value {
	return func(b *trial) graph.Value { return l.Forward(b.Builder, b.real("x")) }
}

// recurrent gives all outputs and the states at the end, one after the other; its weights are named by hand.
func recurrent(l *nn.Recurrent) func(b *trial) graph.Value {
	return func(b *trial) graph.Value {
		x, h, c, lengths := b.real("x"), graph.Value(0), graph.Value(0), graph.Value(0)
		if b.Inputs["h"] != nil {
			h = b.real("h")
		}
		if b.Inputs["c"] != nil {
			c = b.real("c")
		}
		if b.Inputs["lengths"] != nil {
			lengths = b.integers("lengths")
		}
		for _, n := range l.Named() {
			n.Param.Name = n.Name
			b.real(n.Name)
		}
		y, hn, cn := l.ForwardPacked(b.Builder, x, h, c, lengths)
		all := []graph.Value{b.Reshape(y, -1), b.Reshape(hn, -1)}
		if cn != 0 {
			all = append(all, b.Reshape(cn, -1))
		}
		return b.Concat(all...)
	}
}

// largest are the values of TopK, which must be where it says they are.
func largest(axis int, k int64) func(b *trial) graph.Value {
	return func(b *trial) graph.Value {
		x := b.real("x")
		values, ids := b.TopK(x, axis, k)
		return b.Scale(b.Add(values, b.Gather(x, axis, ids)), 0.5)
	}
}

// paddedTable is an embedding whose id 0 is padding.
func paddedTable(b *trial) *nn.Embedding {
	e := &nn.Embedding{Weight: &nn.Param{Name: "table", Shape: b.TypeOf(b.real("table")).Shape}}
	return e.WithPadding(0)
}

func bags(mode op.Reduction) func(b *trial) graph.Value {
	return func(b *trial) graph.Value {
		e := &nn.EmbeddingBag{Embedding: *paddedTable(b), Mode: mode}
		return e.Forward(b.Builder, b.integers("ids"))
	}
}

func scattered(r op.Reduction, include bool) func(b *trial) graph.Value {
	return func(b *trial) graph.Value {
		return b.ScatterReduce(r, b.real("into"), 1, b.integers("ids"), b.real("x"), include)
	}
}

func two(n int64) []int64 { return []int64{n, n} }

var tensorPrograms = map[string]func(b *trial) graph.Value{
	"leaky_relu": mapped(op.LeakyReLU, 0.1, 0), "elu": mapped(op.ELU, 1.3, 0), "selu": mapped(op.SELU, 0, 0), "softplus": mapped(op.Softplus, 2, 3),
	"mish": mapped(op.Mish, 0, 0), "hardswish": mapped(op.Hardswish, 0, 0), "hardsigmoid": mapped(op.Hardsigmoid, 0, 0), "logsigmoid": mapped(op.LogSigmoid, 0, 0),
	"softsign": mapped(op.Softsign, 0, 0), "clamp": mapped(op.Clamp, -0.7, 1.2), "erf": mapped(op.Erf, 0, 0), "sin": mapped(op.Sin, 0, 0), "cos": mapped(op.Cos, 0, 0),
	"abs": mapped(op.Abs, 0, 0), "exp": mapped(op.Exp, 0, 0), "expm1": mapped(op.Expm1, 0, 0), "round": mapped(op.Round, 0, 0), "floor": mapped(op.Floor, 0, 0), "sign": mapped(op.Sign, 0, 0), "log": mapped(op.Log, 0, 0), "sqrt": mapped(op.Sqrt, 0, 0),
	"rsqrt": mapped(op.Rsqrt, 0, 0), "log1p": mapped(op.Log1p, 0, 0), "power": mapped(op.Power, 2.5, 0),

	"sub":     func(b *trial) graph.Value { return b.Sub(b.real("x"), b.real("y")) },
	"div":     func(b *trial) graph.Value { return b.Div(b.real("x"), b.real("y")) },
	"pow":     func(b *trial) graph.Value { return b.Pow(b.real("x"), b.real("y")) },
	"maximum": func(b *trial) graph.Value { return b.Maximum(b.real("x"), b.real("y")) },
	"where": func(b *trial) graph.Value {
		x, y := b.real("x"), b.real("y")
		return b.Where(b.Compare(op.Greater, x, y), b.Scale(x, 2), y)
	},
	"sum":         func(b *trial) graph.Value { return b.Sum(b.real("x"), 0, 2) },
	"mean":        func(b *trial) graph.Value { return b.Mean(b.real("x"), 1, 2) },
	"max":         func(b *trial) graph.Value { return b.Max(b.real("x"), 1) },
	"min":         func(b *trial) graph.Value { return b.Min(b.real("x"), 0, 1) },
	"prod":        func(b *trial) graph.Value { return b.Reduce(op.ReduceProd, b.real("x"), false, 1) },
	"logsumexp":   func(b *trial) graph.Value { return b.LogSumExp(b.real("x"), 1) },
	"softmax":     func(b *trial) graph.Value { return b.Softmax(b.real("x"), 1) },
	"log_softmax": func(b *trial) graph.Value { return b.LogSoftmax(b.real("x"), 0) },
	"matmul":      multiplied(false), "matmul_both_repeated": multiplied(false), "matmul_shared": multiplied(false), "matmul_shared_left": multiplied(false),
	"matmul_row": multiplied(false), "matmul_column": multiplied(false), "matmul_dot": multiplied(false), "matmul_transposed": multiplied(true),
	"mask_all": masked(false), "mask_heads": masked(false), "mask_samples": masked(false), "mask_samples_heads": masked(false), "mask_causal": masked(true),
	"upsample_nearest": layer(nn.Upsample{Scale: 1.5, Mode: op.Nearest}), "upsample_bilinear": layer(nn.Upsample{Scale: 1.5, Mode: op.Linear}), "upsample_bicubic": layer(nn.Upsample{Scale: 1.5, Mode: op.Cubic}),
	"avg_pool2d_layer": layer(nn.NewAvgPool2d(3, 2, 1)), "avg_pool1d_layer": layer(nn.NewAvgPool1d(2, 0, 0)), "max_pool1d_layer": layer(nn.NewMaxPool1d(3, 2, 1)),
	"avg_pool3d_layer": layer(nn.NewAvgPool3d(3, 2, 1)), "max_pool3d_layer": layer(nn.NewMaxPool3d(3, 2, 1)),
	"celu": layer(nn.CELU(1.7)), "softshrink": layer(nn.Softshrink(0.5)), "hardshrink": layer(nn.Hardshrink(0.5)), "tanhshrink": layer(nn.Tanhshrink{}), "glu": layer(nn.GLU(3)),
	"lstm_states": recurrent(nn.NewLSTM(3, 5, 2, true)), "gru_states": recurrent(nn.NewGRU(3, 5, 2, true)), "rnn_states": recurrent(nn.NewRNN(3, 5, 2, true)),
	"mask_relative": func(b *trial) graph.Value {
		q, k, v := b.real("q"), b.real("k"), b.real("v")
		bias := b.Embedding(b.integers("ids"), b.real("table"))
		return b.Attention(op.Attr{Heads: 4, KVHeads: 2, Scale: 0.6}, q, k, v, graph.AttentionMasks{Mask: b.Permute(bias, 2, 0, 1)})
	},
	"detach": func(b *trial) graph.Value {
		x := b.real("x")
		coarse := b.Scale(b.Unary(op.Round, b.Scale(x, 4)), 0.25)
		return b.Add(b.Add(x, b.Detach(b.Sub(coarse, x))), b.Mul(b.Detach(x), x))
	},
	"cumsum":  func(b *trial) graph.Value { return b.CumSum(b.real("x"), 1) },
	"permute": func(b *trial) graph.Value { return b.Permute(b.real("x"), 2, 0, 1) },
	"slice":   func(b *trial) graph.Value { return b.Slice(b.Slice(b.real("x"), 1, 1, 3, 1), 2, 0, 4, 2) },
	"pad":     func(b *trial) graph.Value { return b.Pad(b.real("x"), 1, 2, 1) },
	"pad_constant": func(b *trial) graph.Value {
		return b.PadConstant(b.real("x"), 1, 2, 1, -1.5)
	},
	"pad_reflect":   padded(graph.PadReflect),
	"pad_replicate": padded(graph.PadReplicate),
	"pad_circular":  padded(graph.PadCircular),
	"argmax": func(b *trial) graph.Value {
		x := b.real("x")
		return b.Gather(x, 1, b.Reshape(b.ArgMax(x, 1), 2, 1, 4))
	},
	"argmin": func(b *trial) graph.Value {
		x := b.real("x")
		return b.Gather(x, 2, b.Reshape(b.ArgMin(x, 2), 2, 3, 1))
	},
	"stack":  func(b *trial) graph.Value { return b.Stack(1, b.real("x"), b.real("z")) },
	"cat":    func(b *trial) graph.Value { return b.ConcatAxis(1, b.real("x"), b.real("z")) },
	"gather": func(b *trial) graph.Value { return b.Gather(b.real("x"), 1, b.integers("ids")) },
	"index_select": func(b *trial) graph.Value {
		return b.IndexSelect(b.real("x"), 1, b.integers("ids"))
	},

	"scatter_add": func(b *trial) graph.Value { return b.ScatterAdd(b.real("x"), 1, b.integers("ids"), 4) },
	"index_add":   func(b *trial) graph.Value { return b.IndexAdd(b.real("x"), 1, b.integers("ids"), 4) },
	"roll":        func(b *trial) graph.Value { return b.Roll(b.Roll(b.real("x"), 1, 2), 2, -4) },
	"flip":        func(b *trial) graph.Value { return b.Flip(b.real("x"), 1) },
	"chunk": func(b *trial) graph.Value {
		p := b.Chunk(b.real("x"), 2, 3)
		return b.Concat(p[2], p[1], p[0])
	},
	"topk": largest(1, 3), "topk_last": largest(-1, 2), "topk_many": largest(1, 20),
	"topk_infinite": func(b *trial) graph.Value {
		none := float32(math.Inf(-1))
		_, ids := b.TopK(b.Floats("hidden", []float32{1, none, 2, none, 3, 4}, 2, 3), 1, 3)
		return b.Gather(b.real("x"), 1, ids)
	},
	"sort": func(b *trial) graph.Value {
		x := b.real("x")
		up, _ := b.Sort(x, 1, false)
		down, _ := b.Sort(x, -1, true)
		return b.ConcatAxis(0, up, down)
	},
	"argsort": func(b *trial) graph.Value {
		x, nan, inf := b.real("x"), float32(math.NaN()), float32(math.Inf(1))
		odd := b.Floats("odd", []float32{0, nan, 1, inf, float32(math.Copysign(0, -1)), -inf, 1, nan, nan, 1, -inf, float32(math.Copysign(0, -1)), inf, 1, nan, 0}, 2, 8)
		return b.Stack(0, b.Gather(x, 1, b.ArgSort(odd, 1, false)), b.Gather(x, 1, b.ArgSort(odd, 1, true)))
	},
	"scatter_reduce_sum_with": scattered(op.ReduceSum, true), "scatter_reduce_sum_without": scattered(op.ReduceSum, false),
	"scatter_reduce_mean_with": scattered(op.ReduceMean, true), "scatter_reduce_mean_without": scattered(op.ReduceMean, false),
	"scatter_reduce_amax_with": scattered(op.ReduceMax, true), "scatter_reduce_amax_without": scattered(op.ReduceMax, false),
	"scatter_reduce_amin_with": scattered(op.ReduceMin, true), "scatter_reduce_amin_without": scattered(op.ReduceMin, false),
	"one_hot": func(b *trial) graph.Value { return b.Mul(b.OneHot(b.integers("ids"), 6), b.real("x")) },
	"masked_fill": func(b *trial) graph.Value {
		x := b.real("x")
		return b.MaskedFill(x, b.Compare(op.Greater, x, b.Number(x, 0.3)), -2.5)
	},
	"cumprod":           func(b *trial) graph.Value { return b.CumProd(b.real("x"), 1) },
	"cumprod_one":       func(b *trial) graph.Value { return b.CumProd(b.real("x"), -1) },
	"var":               func(b *trial) graph.Value { return b.Var(b.real("x"), 1, 0, 2) },
	"var_all":           func(b *trial) graph.Value { return b.Var(b.real("x"), 0) },
	"std":               func(b *trial) graph.Value { return b.Std(b.real("x"), 1, 1) },
	"norm":              func(b *trial) graph.Value { return b.Norm(b.real("x"), -1) },
	"normalize":         func(b *trial) graph.Value { return b.Normalize(b.real("x"), -1, 1e-12) },
	"cosine_similarity": func(b *trial) graph.Value { return b.CosineSimilarity(b.real("x"), b.real("y"), 1, 1e-8) },
	"layer_norm_plain":  layer(&nn.LayerNorm{Eps: 1e-5}), "rms_norm_plain": layer(&nn.RMSNorm{Eps: 1e-5}),
	"embedding_padding": func(b *trial) graph.Value { return paddedTable(b).Forward(b.Builder, b.integers("ids")) },
	"embedding_bag_sum": bags(op.ReduceSum), "embedding_bag_mean": bags(op.ReduceMean), "embedding_bag_max": bags(op.ReduceMax),
	"lstm_packed": recurrent(nn.NewLSTM(3, 4, 2, true)), "gru_packed": recurrent(nn.NewGRU(3, 4, 2, true)),
	"cross_entropy_each": func(b *trial) graph.Value {
		return nn.CrossEntropyEach(b.Builder, b.real("x"), b.integers("ids"), nn.CrossEntropyOptions{})
	},
	"cross_entropy_smoothed": func(b *trial) graph.Value {
		return nn.CrossEntropyEach(b.Builder, b.real("x"), b.integers("ids"), nn.CrossEntropyOptions{Weights: []float32{0.5, 2, 1, 1.5}, Smoothing: 0.2})
	},
	"triplet_margin": func(b *trial) graph.Value {
		return nn.TripletMargin(b.Builder, b.real("a"), b.real("b"), b.real("c"), 0.7)
	},
	"cosine_embedding": func(b *trial) graph.Value {
		return nn.CosineEmbedding(b.Builder, b.real("a"), b.real("b"), b.Floats("sign", []float32{1, -1, 1, -1, -1}), 0.1)
	},
	"margin_ranking": func(b *trial) graph.Value {
		return nn.MarginRanking(b.Builder, b.real("a"), b.real("b"), b.Floats("sign", []float32{1, -1, 1, -1, -1}, 5, 1), 0.4)
	},
	"kl_div": func(b *trial) graph.Value {
		return nn.KLDivergence(b.Builder, b.LogSoftmax(b.real("a"), -1), b.LogSoftmax(b.real("b"), -1))
	},
	"gaussian_nll": func(b *trial) graph.Value {
		return nn.GaussianNLL(b.Builder, b.real("a"), b.real("b"), b.real("v"), 0.3)
	},
	"poisson_nll": func(b *trial) graph.Value {
		return nn.PoissonNLL(b.Builder, b.real("a"), b.Unary(op.Abs, b.real("b")))
	},
	"ctc": func(b *trial) graph.Value {
		return nn.CTC(b.Builder, b.LogSoftmax(b.real("x"), -1), b.integers("labels"), b.integers("times"), b.integers("lengths"), 0)
	},

	"slice_outside":    func(b *trial) graph.Value { return b.Slice(b.Slice(b.real("x"), 0, -9, 9, 1), 1, -3, math.MaxInt64, 2) },
	"permute_negative": func(b *trial) graph.Value { return b.Permute(b.real("x"), -1, 0, -2) },
	"stack_negative": func(b *trial) graph.Value {
		x := b.real("x")
		return b.Stack(-2, x, b.Mul(x, x))
	},
	"expand_kept": func(b *trial) graph.Value {
		return b.Reshape(b.Expand(b.Slice(b.real("x"), 1, 0, 1, 1), 4, 2, -1, -1), 4, 2, 3)
	},
	"pad_away":          func(b *trial) graph.Value { return b.Pad(b.Pad(b.real("x"), -1, 1, -1), 1, -2, 1) },
	"pad_away_constant": func(b *trial) graph.Value { return b.PadConstant(b.real("x"), 1, -1, 2, -1.5) },
	"chunk_uneven": func(b *trial) graph.Value {
		p := b.Chunk(b.real("x"), 1, 4)
		slices.Reverse(p)
		return b.ConcatAxis(1, p...)
	},
	"gather_fewer":     func(b *trial) graph.Value { return b.Gather(b.real("x"), 1, b.integers("ids")) },
	"cosine_broadcast": func(b *trial) graph.Value { return b.CosineSimilarity(b.real("x"), b.real("y"), 1, 1e-8) },
	"max_apart_equal":  func(b *trial) graph.Value { return b.Max(b.real("x"), 2, 0) },
	"min_apart_kept":   func(b *trial) graph.Value { return b.Reduce(op.ReduceMin, b.real("x"), true, 0, 2) },
	"max_all_equal":    func(b *trial) graph.Value { return b.Max(b.real("x")) },
	"dropout_all":      func(b *trial) graph.Value { return b.Dropout(b.real("x"), 1) },
	"clamp_crossed":    mapped(op.Clamp, 0.5, -0.5),
	"attention_defaults": func(b *trial) graph.Value {
		x := b.real("x")
		return b.Attention(op.Attr{Heads: 1, Causal: true}, x, x, x, graph.AttentionMasks{})
	},
	"group_norm_weight": func(b *trial) graph.Value { return b.GroupNorm(b.real("x"), 3, b.real("w"), 0, 1e-5) },
	"group_norm_bias":   func(b *trial) graph.Value { return b.GroupNorm(b.real("x"), 3, 0, b.real("b"), 1e-5) },
	"batch_norm_weight": func(b *trial) graph.Value { return b.BatchNorm(b.real("x"), b.real("w"), 0, 0, 0, 1e-5) },

	"conv2d":           convolved(op.Spatial{Padding: two(1)}),
	"conv2d_strided":   convolved(op.Spatial{Stride: two(2), Padding: []int64{2, 1}, Dilation: []int64{2, 1}}),
	"conv2d_groups":    convolved(op.Spatial{Groups: 2}),
	"conv2d_depthwise": convolved(op.Spatial{Groups: 4, Padding: two(1)}),
	"conv1d":           convolved(op.Spatial{Stride: []int64{2}, Padding: []int64{1}}),
	"conv3d":           convolved(op.Spatial{Padding: []int64{0, 1, 1}}),
	"conv3d_strided":   convolved(op.Spatial{Stride: []int64{1, 2, 2}, Padding: []int64{1, 2, 0}, Dilation: []int64{1, 2, 1}, Groups: 2}),
	"conv1d_dilated":   convolved(op.Spatial{Padding: []int64{4}, Dilation: []int64{4}, Groups: 3}),
	"conv2d_reflect": func(b *trial) graph.Value {
		x := b.Padded(graph.PadReflect, b.Padded(graph.PadReflect, b.real("x"), 1, 2, 2), 2, 1, 1)
		return b.Conv(op.Spatial{}, x, b.real("w"), 0)
	},
	"conv_transpose1d": func(b *trial) graph.Value {
		return b.ConvTranspose(op.Spatial{Stride: []int64{3}, Padding: []int64{1}, Dilation: []int64{2}}, []int64{2}, b.real("x"), b.real("w"), b.real("b"))
	},
	"conv_transpose3d": func(b *trial) graph.Value {
		return b.ConvTranspose(op.Spatial{Stride: []int64{2, 2, 2}, Padding: []int64{1, 0, 1}, Groups: 2}, []int64{1, 0, 1}, b.real("x"), b.real("w"), b.real("b"))
	},
	"max_pool1d": func(b *trial) graph.Value {
		return b.MaxPool(op.Spatial{Kernel: []int64{3}, Stride: []int64{2}, Padding: []int64{1}}, b.real("x"))
	},
	"max_pool3d": func(b *trial) graph.Value {
		return b.MaxPool(op.Spatial{Kernel: []int64{2, 2, 2}, Padding: []int64{1, 1, 1}}, b.real("x"))
	},
	"avg_pool3d": func(b *trial) graph.Value {
		return b.AvgPool(op.Spatial{Kernel: []int64{1, 2, 3}, Stride: []int64{1, 2, 2}}, b.real("x"))
	},
	"conv_transpose2d": func(b *trial) graph.Value {
		return b.ConvTranspose(op.Spatial{Stride: two(2), Padding: two(1)}, two(1), b.real("x"), b.real("w"), b.real("b"))
	},
	"conv_transpose2d_groups": func(b *trial) graph.Value {
		return b.ConvTranspose(op.Spatial{Groups: 2}, nil, b.real("x"), b.real("w"), 0)
	},
	"max_pool2d": func(b *trial) graph.Value {
		return b.MaxPool(op.Spatial{Kernel: two(3), Stride: two(2), Padding: two(1)}, b.real("x"))
	},
	"max_pool2d_ceil": func(b *trial) graph.Value {
		return b.MaxPool(op.Spatial{Kernel: two(2), Stride: two(3), Ceil: true}, b.real("x"))
	},
	"avg_pool2d": func(b *trial) graph.Value {
		return b.AvgPool(op.Spatial{Kernel: two(3), Stride: two(2), Padding: two(1), CountPadding: true}, b.real("x"))
	},
	"avg_pool2d_inside": func(b *trial) graph.Value {
		return b.AvgPool(op.Spatial{Kernel: two(3), Stride: two(2), Padding: two(1), Ceil: true}, b.real("x"))
	},
	"adaptive_avg_pool2d": func(b *trial) graph.Value {
		return b.AvgPool(op.Spatial{Kernel: []int64{3, 4}, Adaptive: true}, b.real("x"))
	},
	"adaptive_max_pool2d": func(b *trial) graph.Value {
		return b.MaxPool(op.Spatial{Kernel: []int64{3, 4}, Adaptive: true}, b.real("x"))
	},
	"batch_norm": func(b *trial) graph.Value { return b.BatchNorm(b.real("x"), b.real("w"), b.real("b"), 0, 0, 1e-5) },
	"group_norm": func(b *trial) graph.Value { return b.GroupNorm(b.real("x"), 2, b.real("w"), b.real("b"), 1e-5) },
	"instance_norm": func(b *trial) graph.Value {
		return b.GroupNorm(b.real("x"), 4, 0, 0, 1e-5)
	},
	"interpolate_nearest": resized(op.Nearest, false), "interpolate_nearest-exact": resized(op.NearestExact, false),
	"interpolate_bilinear": resized(op.Linear, false), "interpolate_bilinear_corners": resized(op.Linear, true),
	"interpolate_bicubic": resized(op.Cubic, false), "interpolate_bicubic_corners": resized(op.Cubic, true),
}
