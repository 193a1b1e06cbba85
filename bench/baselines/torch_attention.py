"""PyTorch's causal attention in float32, forward, and forward with backward.

Counted for the half of the scores that a causal mask leaves: 2·B·H·T²·D forward (two
products), and 2.5 times as much backward (five products).
"""

import torch
import torch.nn.functional as F

import baseline


def main():
    parser = baseline.arguments(__doc__, repeat=20)
    for flag, value, meaning in [
        ("-B", 4, "batch"),
        ("-H", 8, "heads"),
        ("-T", 1024, "positions"),
        ("-D", 64, "width of a head"),
    ]:
        parser.add_argument(flag, type=int, default=value, help=f"{meaning} (default: {value})")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shape = options.B, options.H, options.T, options.D
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    dout = torch.randn(shape)

    def forward():
        with torch.no_grad():
            F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        q.grad = k.grad = v.grad = None
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(dout)

    forward_flops = 2 * options.B * options.H * options.T**2 * options.D
    results = []
    for name, work, flops in [("forward", forward, forward_flops), ("forward+backward", both, 3.5 * forward_flops)]:
        seconds = baseline.best(work, options.repeat)
        results.append(
            {"pass": name, "shape_bhtd": shape, "dtype": "float32", "seconds": seconds, "gflops": flops / seconds / 1e9}
        )
    baseline.report("torch", torch.__version__, "attention", options, results)


main()
