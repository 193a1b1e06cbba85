"""Single operations with their gradients, from PyTorch's autograd.

Run with `python -m tools.reference.ops` from the root of the repository.

Inputs are float32 values; everything is computed from them in float64 and then
rounded to float32, so these numbers are right to the last bit or nearly so. Shapes
are small and odd, so that vector code meets its tails.

A case `c` is the tensors `c.<input>` (floats, or integers such as ids), `c.out`,
`c.grad_out` (the random gradient that arrives at the output; 1 where the output is a loss)
and `c.grad.<input>` for every float input. ops.json says which op and options make it.
"""

import torch
import torch.nn.functional as F

from . import fixture

tensors, cases = {}, []


def case(name, op, compute, inputs, **options):
    """Runs compute(**inputs) and records inputs, output and gradients."""
    generator = fixture.stream("op " + name)
    wide = {n: v.double().requires_grad_() if v.is_floating_point() else v for n, v in inputs.items()}
    out = compute(**wide)
    grad_out = torch.ones(()) if out.dim() == 0 else torch.randn(out.shape, generator=generator)
    out.backward(grad_out.double())
    floats = {n: v for n, v in wide.items() if v.is_floating_point()}
    for n, v in {**inputs, "out": out, "grad_out": grad_out}.items():
        tensors[f"{name}.{n}"] = v
    for n, v in floats.items():
        tensors[f"{name}.grad.{n}"] = v.grad
    cases.append({"name": name, "op": op, "inputs": {n: list(v.shape) for n, v in inputs.items()}, "options": options})


def normal(name, *shape, scale=1.0, shift=0.0):
    return shift + scale * torch.randn(shape, generator=fixture.stream("input " + name))


def products():
    x, w, b = normal("linear.x", 3, 5, 7), normal("linear.w", 4, 7), normal("linear.b", 4)
    case("linear", "linear", lambda x, weight, bias: F.linear(x, weight, bias), {"x": x, "weight": w, "bias": b})


def norms():
    x = normal("norm.x", 3, 5, 7, scale=2.0, shift=0.5)
    w, b = normal("norm.w", 7, scale=0.3, shift=1.0), normal("norm.b", 7, scale=0.2)
    case(
        "layernorm",
        "layernorm",
        lambda x, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias, eps=1e-5),
        {"x": x, "weight": w, "bias": b},
        eps=1e-5,
    )
    case(
        "rmsnorm",
        "rmsnorm",
        lambda x, weight: F.rms_norm(x, x.shape[-1:], weight, eps=1e-6),
        {"x": x, "weight": w},
        eps=1e-6,
    )
    # Mean square near eps, so that eps in the wrong place shows.
    case(
        "rmsnorm-tiny",
        "rmsnorm",
        lambda x, weight: F.rms_norm(x, x.shape[-1:], weight, eps=1e-5),
        {"x": x * 1e-3, "weight": w},
        eps=1e-5,
    )


def activations():
    x = normal("activation.x", 5, 19, scale=3.0)
    x[0, :6] = torch.tensor([-30.0, -10.0, -0.0, 1e-6, 10.0, 30.0])
    case("gelu", "gelu", lambda x: F.gelu(x), {"x": x}, approximate="none")
    case("gelu-tanh", "gelu", lambda x: F.gelu(x, approximate="tanh"), {"x": x}, approximate="tanh")
    case("silu", "silu", lambda x: F.silu(x), {"x": x})
    case("relu", "relu", lambda x: F.relu(x), {"x": x})
    case("swiglu", "swiglu", lambda gate, up: F.silu(gate) * up, {"gate": x, "up": normal("swiglu.up", 5, 19)})
    case("softmax", "softmax", lambda x: F.softmax(x, dim=-1), {"x": x})


def rotate(x, positions, theta, dims):
    """Rope as Hugging Face stores it: element i pairs with element i + dims/2.
    x is [batch, position, head, dim], positions [batch, position]."""
    frequencies = theta ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    angle = (positions[..., None].double() * frequencies)[:, :, None, :]
    a, b = x[..., : dims // 2], x[..., dims // 2 :]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)


def rope():
    x = normal("rope.x", 2, 5, 3, 6)
    starts = torch.arange(5)
    for name, positions in {
        "rope": torch.stack((starts, starts)),
        "rope-positions": torch.stack((starts + 100, torch.tensor([0, 1, 2, 0, 1]))),
    }.items():
        case(
            name,
            "rope",
            lambda x, positions: rotate(x, positions, 10000.0, 6),
            {"x": x, "positions": positions},
            theta=10000.0,
        )


def attention(name, shape, mask, scale=None, **options):
    """shape is (batch, queries, keys, heads, kv_heads, dim); tensors are [batch, position,
    head, dim]. mask is bool, True where a query may attend; a longer key side ends with the queries."""
    batch, queries, keys, heads, kv_heads, dim = shape

    def compute(q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
        return out.transpose(1, 2)

    inputs = {
        "q": normal(name + ".q", batch, queries, heads, dim, scale=1.5),
        "k": normal(name + ".k", batch, keys, kv_heads, dim, scale=1.5),
        "v": normal(name + ".v", batch, keys, kv_heads, dim),
    }
    case(name, "attention", compute, inputs, scale=scale or dim**-0.5, **options)


def attentions():
    def distance(queries, keys):
        return (torch.arange(queries)[:, None] + keys - queries) - torch.arange(keys)[None, :]

    square = distance(7, 7)
    attention("attention-full", (2, 7, 7, 3, 3, 5), None, causal=False)
    attention("attention-causal", (2, 7, 7, 3, 3, 5), square >= 0, causal=True)
    attention("attention-gqa", (2, 7, 7, 6, 2, 5), square >= 0, causal=True)
    attention("attention-scale", (1, 7, 7, 2, 1, 5), square >= 0, scale=0.25, causal=True)
    attention("attention-window", (2, 7, 7, 4, 2, 5), (square >= 0) & (square < 3), causal=True, window=3)
    cached = distance(3, 8)
    attention("attention-cached", (2, 3, 8, 4, 2, 5), cached >= 0, causal=True)
    document = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    same = document[:, None] == document[None, :]
    attention("attention-packed", (1, 7, 7, 4, 2, 5), (square >= 0) & same, causal=True, documents=document.tolist())


def losses():
    targets = torch.tensor([3, 0, -100, 10, 5, -100, 5, 2, 9])
    case(
        "cross-entropy",
        "cross_entropy",
        lambda logits, targets: F.cross_entropy(logits, targets, ignore_index=-100),
        {"logits": normal("ce.logits", 9, 11, scale=3.0), "targets": targets},
        ignore_index=-100,
        reduction="mean",
    )
    case(
        "linear-cross-entropy",
        "linear_cross_entropy",
        lambda x, weight, targets: F.cross_entropy(F.linear(x, weight), targets, ignore_index=-100),
        {"x": normal("lce.x", 9, 6), "weight": normal("lce.w", 11, 6), "targets": targets},
        ignore_index=-100,
        reduction="mean",
    )
    case(
        "mse",
        "mse",
        lambda x, target: F.mse_loss(x, target),
        {"x": normal("mse.x", 3, 7), "target": normal("mse.target", 3, 7)},
        reduction="mean",
    )


def embeddings():
    ids = torch.tensor([[0, 3, 3, 10], [3, 7, 0, 1], [9, 9, 9, 9]])
    case(
        "embedding",
        "embedding",
        lambda table, ids: F.embedding(ids, table),
        {"table": normal("embedding.table", 11, 5), "ids": ids},
    )


def main():
    fixture.repeatable()
    for make in (products, norms, activations, rope, attentions, losses, embeddings):
        make()
    fixture.folder(".")
    fixture.write_tensors(fixture.ROOT / "ops.safetensors", tensors)
    fixture.write_json(fixture.ROOT / "ops.json", {"versions": fixture.versions(), "cases": cases})
    print(f"{len(cases)} op cases")


if __name__ == "__main__":
    main()
