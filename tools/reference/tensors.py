"""Ops on tensors of any shape, convolutions, pooling and norms, with their gradients.

Run with `python -m tools.reference.tensors` from the root of the repository. Cases are as in ops.py;
tensors with spatial dimensions are written with channels last, as Spillway has them.
"""

import torch
import torch.nn.functional as F

from . import fixture, ops

normal, case = ops.normal, ops.case


def first(x):
    """Channels behind the batch, as PyTorch has them."""
    return x.movedim(-1, 1)


def last(x):
    return x.movedim(1, -1)


def one(name, compute, **inputs):
    case(name, name, lambda **tensors: compute(*tensors.values()), inputs)


def positive(name, *shape):
    return normal(name, *shape).abs() + 0.2


def functions():
    x = normal("functions.x", 4, 9, scale=2.0)
    for name, f in {
        "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
        "elu": lambda x: F.elu(x, 1.3),
        "selu": F.selu,
        "softplus": lambda x: F.softplus(x, 2.0, 3.0),
        "mish": F.mish,
        "hardswish": F.hardswish,
        "hardsigmoid": F.hardsigmoid,
        "logsigmoid": F.logsigmoid,
        "softsign": F.softsign,
        "clamp": lambda x: x.clamp(-0.7, 1.2),
        "erf": torch.erf,
        "sin": torch.sin,
        "cos": torch.cos,
        "abs": torch.abs,
        "exp": torch.exp,
        "expm1": torch.expm1,
        "round": torch.round,
        "floor": torch.floor,
        "sign": torch.sign,
    }.items():
        one(name, f, x=x)
    y = positive("functions.y", 4, 9)
    for name, f in {"log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "log1p": torch.log1p, "power": lambda x: x**2.5}.items():
        one(name, f, x=y)


def tensors():
    x, y, p = normal("t.x", 2, 3, 4), normal("t.y", 3, 1), positive("t.p", 3, 1)
    one("sub", lambda x, y: x - y, x=x, y=y)
    one("div", lambda x, y: x / y, x=x, y=p)
    one("pow", lambda x, y: x**y, x=positive("t.q", 2, 3, 4), y=p)
    one("maximum", torch.maximum, x=x, y=y)
    one("where", lambda x, y: torch.where(x > y, x * 2, y), x=x, y=y)
    one("sum", lambda x: x.sum((0, 2)), x=x)
    one("mean", lambda x: x.mean((1, 2)), x=x)
    one("max", lambda x: x.amax(1), x=x)
    one("min", lambda x: x.amin((0, 1)), x=x)
    one("prod", lambda x: x.prod(1), x=x)
    one("logsumexp", lambda x: x.logsumexp(1), x=x)
    one("softmax", lambda x: x.softmax(1), x=x)
    one("log_softmax", lambda x: x.log_softmax(0), x=x)
    one("cumsum", lambda x: x.cumsum(1), x=x)
    one("permute", lambda x: x.permute(2, 0, 1), x=x)
    one("slice", lambda x: x[:, 1:, ::2], x=x)
    one("pad", lambda x: F.pad(x, (0, 0, 2, 1)), x=x)
    one("pad_constant", lambda x: F.pad(x, (0, 0, 2, 1), value=-1.5), x=x)
    p = normal("t.padded", 2, 5, 3, 4)
    for mode in ("reflect", "replicate", "circular"):
        one(f"pad_{mode}", lambda x, m=mode: last(F.pad(first(x), (2, 1, 1, 3), mode=m)), x=p)
    one("detach", lambda x: x + ((x * 4).round() / 4 - x).detach() + x.detach() * x, x=x)
    one("argmax", lambda x: x.gather(1, x.argmax(1, keepdim=True)), x=x)
    one("argmin", lambda x: x.gather(2, x.argmin(2, keepdim=True)), x=x)
    one("stack", lambda x, z: torch.stack((x, z), 1), x=x, z=normal("t.z", 2, 3, 4))
    one("cat", lambda x, z: torch.cat((x, z), 1), x=x, z=normal("t.w", 2, 2, 4))
    ids = torch.tensor([[[0, 2, 1, 1]], [[2, 2, 0, 1]]])
    one("gather", lambda x, ids: x.gather(1, ids), x=x, ids=ids)
    one("index_select", lambda x, ids: x.index_select(1, ids), x=x, ids=torch.tensor([2, 0, 2]))


def matmuls():
    x, y = normal("m.x", 2, 3, 5, 4), normal("m.y", 3, 4, 6)
    one("matmul", torch.matmul, x=x, y=y)
    one("matmul_transposed", lambda x, y: x.mT @ y.mT, x=normal("m.xt", 3, 4, 5), y=normal("m.yt", 2, 1, 6, 4))
    one("matmul_both_repeated", torch.matmul, x=normal("m.xr", 2, 1, 5, 4), y=y)
    one("matmul_shared", torch.matmul, x=x, y=normal("m.ys", 4, 6))
    one("matmul_shared_left", torch.matmul, x=normal("m.xs", 5, 4), y=y)
    one("matmul_row", torch.matmul, x=normal("m.row", 4), y=y)
    one("matmul_column", torch.matmul, x=x, y=normal("m.column", 4))
    one("matmul_dot", torch.matmul, x=normal("m.row", 4), y=normal("m.column", 4))


def masks():
    """Attention with masks that have gradients: q, k and v are [B T H*D], heads share keys in groups of two."""
    heads, shared, width = 4, 2, 3
    q, k, v = normal("a.q", 2, 5, heads * width), normal("a.k", 2, 7, shared * width), normal("a.v", 2, 7, shared * width)

    def attend(q, k, v, mask, causal=False):
        def split(x, n):
            return x.unflatten(-1, (n, width)).transpose(1, 2)

        if causal:
            hidden = torch.ones(5, 7, dtype=torch.bool).triu(3)
            mask = mask.masked_fill(hidden, float("-inf"))
        o = F.scaled_dot_product_attention(split(q, heads), split(k, shared), split(v, shared), attn_mask=mask, scale=0.6, enable_gqa=True)
        return o.transpose(1, 2).flatten(2)

    for name, shape in {"all": (5, 7), "heads": (heads, 5, 7), "samples": (2, 1, 5, 7), "samples_heads": (2, heads, 5, 7)}.items():
        one(f"mask_{name}", attend, q=q, k=k, v=v, mask=normal(f"a.{name}", *shape))
    one("mask_causal", lambda *x: attend(*x, causal=True), q=q, k=k, v=v, mask=normal("a.causal", 1, heads, 5, 7))
    # A bias by relative position, as T5 has it: a table [distances, heads], looked up for each pair.
    distance = torch.arange(7)[None, :] - torch.arange(5)[:, None] + 4
    one("mask_relative", lambda q, k, v, table, ids: attend(q, k, v, table[ids].permute(2, 0, 1)), q=q, k=k, v=v, table=normal("a.table", 11, heads), ids=distance)


def windows():
    x, w, b = normal("c.x", 2, 7, 6, 4), normal("c.w", 6, 4, 3, 3, scale=0.3), normal("c.b", 6)
    one("conv2d", lambda x, w, b: last(F.conv2d(first(x), w, b, padding=1)), x=x, w=w, b=b)
    one("conv2d_strided", lambda x, w, b: last(F.conv2d(first(x), w, b, stride=2, padding=(2, 1), dilation=(2, 1))), x=x, w=w, b=b)
    one("conv2d_groups", lambda x, w, b: last(F.conv2d(first(x), w, b, groups=2)), x=x, w=normal("c.g", 6, 2, 3, 3), b=b)
    one("conv2d_depthwise", lambda x, w: last(F.conv2d(first(x), w, groups=4, padding=1)), x=x, w=normal("c.d", 4, 1, 3, 3))
    one("conv1d", lambda x, w: last(F.conv1d(first(x), w, stride=2, padding=1)), x=normal("c.x1", 2, 9, 3), w=normal("c.w1", 5, 3, 4))
    one("conv3d", lambda x, w: last(F.conv3d(first(x), w, padding=(0, 1, 1))), x=normal("c.x3", 1, 3, 4, 5, 2), w=normal("c.w3", 3, 2, 2, 3, 3))
    x3 = normal("c.x3s", 2, 5, 6, 7, 4)
    one(
        "conv3d_strided",
        lambda x, w, b: last(F.conv3d(first(x), w, b, stride=(1, 2, 2), padding=(1, 2, 0), dilation=(1, 2, 1), groups=2)),
        x=x3,
        w=normal("c.w3s", 6, 2, 2, 3, 3, scale=0.3),
        b=normal("c.b3s", 6),
    )
    one("conv1d_dilated", lambda x, w: last(F.conv1d(first(x), w, padding=4, dilation=4, groups=3)), x=normal("c.x1d", 2, 11, 6), w=normal("c.w1d", 6, 2, 3))
    one(
        "conv2d_reflect",
        lambda x, w: last(F.conv2d(F.pad(first(x), (1, 1, 2, 2), mode="reflect"), w)),
        x=x,
        w=normal("c.wr", 3, 4, 3, 3),
    )
    one(
        "conv_transpose1d",
        lambda x, w, b: last(F.conv_transpose1d(first(x), w, b, stride=3, padding=1, output_padding=2, dilation=2)),
        x=normal("c.tx1", 2, 5, 4),
        w=normal("c.t1", 4, 3, 3),
        b=normal("c.tb1", 3),
    )
    one(
        "conv_transpose3d",
        lambda x, w, b: last(F.conv_transpose3d(first(x), w, b, stride=2, padding=(1, 0, 1), output_padding=(1, 0, 1), groups=2)),
        x=normal("c.tx3", 1, 3, 2, 3, 4),
        w=normal("c.t3", 4, 3, 3, 2, 3),
        b=normal("c.tb3", 6),
    )
    one("max_pool1d", lambda x: last(F.max_pool1d(first(x), 3, 2, 1)), x=normal("c.p1", 2, 9, 3))
    one("max_pool3d", lambda x: last(F.max_pool3d(first(x), 2, 2, 1)), x=x3)
    one("avg_pool3d", lambda x: last(F.avg_pool3d(first(x), (1, 2, 3), (1, 2, 2))), x=x3)
    t = normal("c.t", 4, 3, 3, 3)
    one(
        "conv_transpose2d",
        lambda x, w, b: last(F.conv_transpose2d(first(x), w, b, stride=2, padding=1, output_padding=1)),
        x=normal("c.tx", 2, 3, 4, 4),
        w=t,
        b=normal("c.tb", 3),
    )
    one("conv_transpose2d_groups", lambda x, w: last(F.conv_transpose2d(first(x), w, groups=2)), x=normal("c.tx", 2, 3, 4, 4), w=t)
    one("max_pool2d", lambda x: last(F.max_pool2d(first(x), 3, 2, 1)), x=x)
    one("max_pool2d_ceil", lambda x: last(F.max_pool2d(first(x), 2, 3, ceil_mode=True)), x=x)
    one("avg_pool2d", lambda x: last(F.avg_pool2d(first(x), 3, 2, 1)), x=x)
    one("avg_pool2d_inside", lambda x: last(F.avg_pool2d(first(x), 3, 2, 1, ceil_mode=True, count_include_pad=False)), x=x)
    one("adaptive_avg_pool2d", lambda x: last(F.adaptive_avg_pool2d(first(x), (3, 4))), x=x)
    one("adaptive_max_pool2d", lambda x: last(F.adaptive_max_pool2d(first(x), (3, 4))), x=x)
    weight, bias = normal("n.w", 4), normal("n.b", 4)
    one("batch_norm", lambda x, w, b: last(F.batch_norm(first(x), None, None, w, b, True, eps=1e-5)), x=x, w=weight, b=bias)
    one("group_norm", lambda x, w, b: last(F.group_norm(first(x), 2, w, b, 1e-5)), x=x, w=weight, b=bias)
    one("instance_norm", lambda x: last(F.instance_norm(first(x), eps=1e-5)), x=x)
    for mode, corners in (("nearest", None), ("nearest-exact", None), ("bilinear", False), ("bilinear", True), ("bicubic", False), ("bicubic", True)):
        name = f"interpolate_{mode}" + ("_corners" if corners else "")
        one(name, lambda x, m=mode, c=corners: last(F.interpolate(first(x), (5, 11), mode=m, align_corners=c)), x=x)


def layers():
    """Layers of nn whose options differ from what the ops above have."""
    x = normal("l.x", 2, 5, 5, 4, scale=1.5)
    for mode in ("nearest", "bilinear", "bicubic"):
        one(f"upsample_{mode}", lambda x, m=mode: last(F.interpolate(first(x), scale_factor=1.5, mode=m)), x=x)
    one("avg_pool2d_layer", lambda x: last(F.avg_pool2d(first(x), 3, 2, 1)), x=x)
    line, room = normal("l.line", 2, 9, 4), normal("l.room", 2, 6, 5, 7, 3)
    one("avg_pool1d_layer", lambda x: last(F.avg_pool1d(first(x), 2)), x=line)
    one("max_pool1d_layer", lambda x: last(F.max_pool1d(first(x), 3, 2, 1)), x=line)
    one("avg_pool3d_layer", lambda x: last(F.avg_pool3d(first(x), 3, 2, 1)), x=room)
    one("max_pool3d_layer", lambda x: last(F.max_pool3d(first(x), 3, 2, 1)), x=room)
    for name, f in {"celu": lambda x: F.celu(x, 1.7), "softshrink": F.softshrink, "hardshrink": F.hardshrink, "tanhshrink": F.tanhshrink, "glu": lambda x: F.glu(x, 3)}.items():
        one(name, f, x=x)
    for cell in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        layer = cell(3, 5, 2, batch_first=True, bidirectional=True).double()
        names = [name for name, _ in layer.named_parameters()]
        weights = {name: normal(f"l.{cell.__name__}.{name}", *p.shape, scale=0.4) for name, p in layer.named_parameters()}
        lstm = cell is torch.nn.LSTM

        def run(x, h, *rest, layer=layer, names=names, lstm=lstm):
            start, rest = ((h, rest[0]), rest[1:]) if lstm else (h, rest)
            y, end = torch.func.functional_call(layer, dict(zip(names, rest)), (x, start))
            ends = torch.cat(end) if lstm else end
            return torch.cat((y.flatten(), ends.flatten()))

        states = {"h": normal("l.h", 4, 2, 5)} | ({"c": normal("l.c", 4, 2, 5)} if lstm else {})
        one(f"{cell.__name__.lower()}_states", run, x=normal("l.s", 2, 4, 3), **states, **weights)


def composed():
    """What is one name in PyTorch and several ops here."""
    x, ids = normal("o.x", 2, 5, 3), torch.tensor([[[0, 3, 1]] * 2 + [[3, 3, 0]] * 3, [[2, 2, 2]] * 5])
    one("scatter_add", lambda x, ids: torch.zeros(2, 4, 3).double().scatter_add(1, ids, x), x=x, ids=ids)
    one("index_add", lambda x, ids: torch.zeros(2, 4, 3).double().index_add(1, ids, x), x=x, ids=torch.tensor([3, 0, 3, 3, 1]))
    one("roll", lambda x: x.roll((2, -4), (1, 2)), x=x)
    one("flip", lambda x: x.flip(1), x=x)
    one("chunk", lambda x: torch.cat(x.chunk(3, 2)[::-1], 2), x=x)
    one("topk", lambda x: x.topk(3, 1)[0], x=x)
    one("topk_last", lambda x: x.topk(2, -1)[0], x=x)
    one("topk_many", lambda x: x.topk(20, 1)[0], x=normal("o.many", 2, 25, 2))
    hidden = torch.tensor([[1.0, -torch.inf, 2.0], [-torch.inf, 3.0, 4.0]])
    one("topk_infinite", lambda x: x.gather(1, hidden.topk(3, 1)[1]), x=normal("o.i", 2, 3))
    one("sort", lambda x: torch.cat((x.sort(1)[0], x.sort(-1, descending=True)[0])), x=x)
    odd = torch.tensor([[0.0, torch.nan, 1.0, torch.inf, -0.0, -torch.inf, 1.0, torch.nan]] * 2)
    odd[1] = odd[1].flip(0)
    one("argsort", lambda x: torch.stack([x.gather(1, odd.argsort(dim=1, stable=True, descending=back)) for back in (False, True)]), x=normal("o.order", 2, 8))
    into, moved = normal("o.into", 2, 4, 3), x.clone()
    moved[0, 2, 1], into[0, 3, 0] = moved[0, 3, 1], moved[0, 2:, 0].max()  # equal ones
    apart = into + 0.01  # PyTorch gives numbers that do not take part a share of the gradient where they are equal
    for name in ("sum", "mean", "amax", "amin"):
        for include in (True, False):
            one(
                f"scatter_reduce_{name}_{'with' if include else 'without'}",
                lambda into, x, ids, n=name, i=include: into.scatter_reduce(1, ids, x, n, include_self=i),
                into=into if include else apart,
                x=moved,
                ids=ids,
            )
    one("one_hot", lambda x, ids: x[None] * F.one_hot(ids, 6), x=normal("o.h", 6), ids=torch.tensor([5, 0, 0, 2]))
    one("masked_fill", lambda x: x.masked_fill(x > 0.3, -2.5), x=x)
    gone = x.clone()
    gone[0, 2, 1] = gone[1, 1, 0] = gone[1, 3, 0] = 0
    one("cumprod", lambda x: x.cumprod(1), x=gone)
    one("cumprod_one", lambda x: x.cumprod(-1), x=x[:, :, :1])
    one("var", lambda x: x.var((0, 2)), x=x)
    one("var_all", lambda x: x.var(correction=0).reshape(1), x=x)
    one("std", lambda x: x.std(1), x=x)
    zero = normal("o.z", 4, 5)
    zero[2] = 0
    one("norm", lambda x: x.norm(dim=-1), x=zero)
    one("normalize", lambda x: F.normalize(x, dim=-1), x=zero)
    one("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, 1), x=x, y=normal("o.y", 2, 5, 3))
    one("layer_norm_plain", lambda x: F.layer_norm(x, (3,), eps=1e-5), x=x)
    one("rms_norm_plain", lambda x: F.rms_norm(x, (3,), eps=1e-5), x=x)


def edges():
    """Arguments at the edge of what PyTorch takes: slices that reach outside, negative axes and padding, parts that do not divide."""
    x = normal("e.x", 2, 5, 3)
    one("slice_outside", lambda x: x[-9:9, -3:99:2], x=x)
    one("permute_negative", lambda x: x.permute(-1, 0, -2), x=x)
    one("stack_negative", lambda x: torch.stack((x, x * x), -2), x=x)
    one("expand_kept", lambda x: x[:, :1].expand(4, 2, -1, -1)[:, :, 0], x=x)
    one("pad_away", lambda x: F.pad(x, (1, -1, -2, 1)), x=x)
    one("pad_away_constant", lambda x: F.pad(x, (0, 0, -1, 2), value=-1.5), x=x)
    one("chunk_uneven", lambda x: torch.cat(x.chunk(4, 1)[::-1], 1), x=x)
    one("gather_fewer", lambda x, ids: x.gather(1, ids), x=x, ids=torch.tensor([[[4, 0], [3, 3], [0, 4]]]))
    one("cosine_broadcast", lambda x, y: F.cosine_similarity(x, y, 1), x=x, y=normal("e.y", 5, 1))
    equal = x.round()
    one("max_apart_equal", lambda x: x.amax((0, 2)), x=equal)
    one("min_apart_kept", lambda x: x.amin((0, 2), keepdim=True), x=equal)
    one("max_all_equal", lambda x: x.amax().reshape(1), x=equal)
    one("dropout_all", lambda x: F.dropout(x, 1.0), x=x)
    one("clamp_crossed", lambda x: x.clamp(0.5, -0.5), x=x)
    one("attention_defaults", lambda x: F.scaled_dot_product_attention(*[x.reshape(2, 5, 1, 3).transpose(1, 2)] * 3, is_causal=True).transpose(1, 2).flatten(2), x=x)
    image, weight = normal("e.i", 2, 4, 3, 6), normal("e.w", 6)
    one("group_norm_weight", lambda x, w: last(F.group_norm(first(x), 3, w)), x=image, w=weight)
    one("group_norm_bias", lambda x, b: last(F.group_norm(first(x), 3, None, b)), x=image, b=weight)
    one("batch_norm_weight", lambda x, w: last(F.batch_norm(first(x), None, None, w, None, True)), x=image, w=weight)


def padded_ids():
    """Embeddings with padding_idx, and recurrent layers over sequences of several lengths."""
    table, ids = normal("i.t", 7, 3), torch.tensor([[1, 4, 0, 0], [0, 0, 0, 0], [6, 1, 1, 2]])
    one("embedding_padding", lambda table, ids: F.embedding(ids, table, padding_idx=0), table=table, ids=ids)
    for mode in ("sum", "mean", "max"):
        one(f"embedding_bag_{mode}", lambda table, ids, m=mode: F.embedding_bag(ids, table, mode=m, padding_idx=0), table=table, ids=ids)
    for cell in (torch.nn.LSTM, torch.nn.GRU):
        layer = cell(3, 4, 2, batch_first=True, bidirectional=True).double()
        names = [name for name, _ in layer.named_parameters()]
        weights = {name: normal(f"i.{cell.__name__}.{name}", *p.shape, scale=0.4) for name, p in layer.named_parameters()}

        def run(x, lengths, *rest, layer=layer, names=names):
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            y, end = torch.func.functional_call(layer, dict(zip(names, rest)), (packed,))
            y = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=5)[0]
            return torch.cat((y.flatten(), *(e.flatten() for e in (end if isinstance(end, tuple) else (end,)))))

        one(f"{cell.__name__.lower()}_packed", run, x=normal("i.s", 3, 5, 3), lengths=torch.tensor([3, 5, 1]), **weights)


def pairs():
    """Losses that compare outputs with each other or with distributions, with reduction none."""
    a, b, c = (normal(f"p.{n}", 5, 4) for n in "abc")
    sign = torch.tensor([1.0, -1.0, 1.0, -1.0, -1.0])
    one("triplet_margin", lambda a, b, c: F.triplet_margin_loss(a, b, c, margin=0.7, reduction="none"), a=a, b=b, c=c)
    one("cosine_embedding", lambda a, b: F.cosine_embedding_loss(a, b, sign.double(), margin=0.1, reduction="none"), a=a, b=b)
    one("margin_ranking", lambda a, b: F.margin_ranking_loss(a, b, sign.double()[:, None], margin=0.4, reduction="none"), a=a, b=b)
    one("kl_div", lambda a, b: F.kl_div(a.log_softmax(-1), b.log_softmax(-1), log_target=True, reduction="none"), a=a, b=b)
    variance = positive("p.v", 5, 4)
    variance[1, 2] = 0.0
    one("gaussian_nll", lambda a, b, v: F.gaussian_nll_loss(a, b, v, eps=0.3, reduction="none"), a=a, b=b, v=variance)
    one("poisson_nll", lambda a, b: F.poisson_nll_loss(a, b.abs(), reduction="none"), a=a, b=b)
    classes, weights = torch.tensor([[3, 0, -100], [1, 1, 2]]), torch.tensor([0.5, 2.0, 1.0, 1.5]).double()
    logits = normal("p.logits", 2, 3, 4)
    one("cross_entropy_each", lambda x, ids: F.cross_entropy(x.flatten(0, 1), ids.flatten(), reduction="none").view(2, 3), x=logits, ids=classes)
    one("cross_entropy_smoothed", lambda x, ids: F.cross_entropy(x.flatten(0, 1), ids.flatten(), weights, reduction="none", label_smoothing=0.2).view(2, 3), x=logits, ids=classes)
    labels = torch.tensor([[1, 2, 2, 4], [3, 1, 0, 0], [4, 0, 0, 0], [0, 0, 0, 0]])

    def ctc(x, labels, times, lengths):
        return F.ctc_loss(x.log_softmax(-1).transpose(0, 1), labels, times, lengths, reduction="none")

    one("ctc", ctc, x=normal("p.ctc", 4, 8, 5), labels=labels, times=torch.tensor([8, 7, 5, 2]), lengths=torch.tensor([4, 2, 1, 0]))


def main():
    fixture.repeatable()
    ops.tensors.clear()
    ops.cases.clear()
    for make in (functions, tensors, matmuls, masks, windows, layers, composed, edges, padded_ids, pairs):
        make()
    fixture.write_tensors(fixture.ROOT / "tensors.safetensors", ops.tensors)
    fixture.write_json(fixture.ROOT / "tensors.json", {"cases": ops.cases, "versions": fixture.versions()})
    print(f"{len(ops.cases)} cases of tensors")


if __name__ == "__main__":
    main()
