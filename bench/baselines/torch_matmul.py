"""PyTorch's float32 matrix product of square matrices, in GFLOP/s counted as 2·n³."""

import torch

import baseline


def measure(n, repeat):
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    seconds = baseline.best(lambda: torch.mm(a, b, out=out), repeat)
    return {"n": n, "dtype": "float32", "seconds": seconds, "gflops": 2 * n**3 / seconds / 1e9}


def main():
    parser = baseline.arguments(__doc__, repeat=30)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    baseline.report("torch", torch.__version__, "matmul", options, [measure(n, options.repeat) for n in options.sizes])


main()
