"""PyTorch's matrix product of square matrices, in GFLOP/s counted as 2·n³."""

import torch

import baseline


def measure(n, repeat, dtype):
    a, b, out = (torch.randn(n, n).to(getattr(torch, dtype)) for _ in range(3))
    seconds = baseline.best(lambda: torch.mm(a, b, out=out), repeat)
    return {"n": n, "dtype": dtype, "seconds": seconds, "gflops": 2 * n**3 / seconds / 1e9}


def main():
    parser = baseline.arguments(__doc__, repeat=30)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048])
    parser.add_argument("--dtype", default="float32", help="float32 or bfloat16 (default: float32)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = [measure(n, options.repeat, options.dtype) for n in options.sizes]
    baseline.report("torch", torch.__version__, "matmul", options, results)


main()
