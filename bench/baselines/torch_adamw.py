"""PyTorch's AdamW on one float32 parameter, fused and foreach.

GB/s counts 28 bytes per parameter: weight, gradient and two moments are read,
weight and moments written.
"""

import torch

import baseline

BYTES = 28


def measure(kind, n, repeat):
    p = torch.nn.Parameter(torch.randn(n))
    p.grad = torch.randn(n)
    optimizer = torch.optim.AdamW([p], lr=1e-3, weight_decay=0.01, **{kind: True})
    seconds = baseline.best(optimizer.step, repeat)
    return {"kind": kind, "params": n, "seconds": seconds, "gb_per_s": BYTES * n / seconds / 1e9}


def main():
    parser = baseline.arguments(__doc__, repeat=20)
    parser.add_argument("--params", type=int, default=50_000_000)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = [measure(kind, options.params, options.repeat) for kind in ("fused", "foreach")]
    baseline.report("torch", torch.__version__, "adamw", options, results)


main()
