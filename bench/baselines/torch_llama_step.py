"""One full training iteration of a small Llama in PyTorch on the CPU.

Forward, cross entropy, backward and fused AdamW; weights and states in float32, computed in float32 or by
torch.autocast in bfloat16. GFLOP/s are counted as
6 · params · tokens / seconds, so attention's own products are left out.
"""

import torch
import torch.nn.functional as F
from torch import nn

import baseline

HEAD = 64  # width of a head


class Layer(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):
        h = self.norm1(x)
        q, k, v = (p(h).unflatten(-1, (-1, HEAD)).transpose(1, 2) for p in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(rope(q, cos, sin), rope(k, cos, sin), v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(-2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rope(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Llama(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embed = nn.Embedding(options.vocab, options.hidden)
        self.layers = nn.ModuleList(Layer(options.hidden, options.inner) for _ in range(options.layers))
        self.norm = nn.RMSNorm(options.hidden, eps=1e-5)
        self.head = nn.Linear(options.hidden, options.vocab, bias=False)
        if not options.untied:
            self.head.weight = self.embed.weight
        angles = torch.outer(torch.arange(options.positions), 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD))
        self.cos, self.sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


def options():
    parser = baseline.arguments(__doc__, repeat=3)
    for flag, value in [
        ("layers", 8),
        ("hidden", 512),
        ("inner", 1376),
        ("vocab", 32000),
        ("batch", 4),
        ("positions", 256),
    ]:
        parser.add_argument("--" + flag, type=int, default=value, help=f"(default: {value})")
    parser.add_argument("--dtype", default="float32", help="float32 or bfloat16 (default: float32)")
    parser.add_argument("--untied", action="store_true", help="an output matrix of its own")
    return parser.parse_args()


def main():
    o = options()
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    model = Llama(o)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    ids = torch.randint(o.vocab, (o.batch, o.positions))
    targets = ids.roll(-1, dims=1)
    losses = []

    def iteration():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=o.dtype == "bfloat16"):
            loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    seconds = baseline.best(iteration, o.repeat)
    params, tokens = sum(p.numel() for p in model.parameters()), o.batch * o.positions
    shape = {"layers": o.layers, "hidden": o.hidden, "inner": o.inner, "vocab": o.vocab, "tied": not o.untied, "dtype": o.dtype}
    result = {"params": params, "tokens": tokens, "seconds": seconds, "gflops": 6 * params * tokens / seconds / 1e9}
    baseline.report("torch", torch.__version__, "llama_step", o, [{**shape, **result, "losses": losses}])


main()
