"""numpy's float32 matrix product (its BLAS, usually OpenBLAS), in GFLOP/s counted as 2·n³."""

import os

import baseline

# A BLAS reads its number of threads when it is loaded, so numpy is imported after this.
parser = baseline.arguments(__doc__, repeat=30)
parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048])
options = parser.parse_args()
for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = str(options.threads)

import numpy


def measure(n):
    stream = numpy.random.default_rng(0)
    a, b = (stream.standard_normal((n, n), dtype=numpy.float32) for _ in range(2))
    out = numpy.empty((n, n), dtype=numpy.float32)
    seconds = baseline.best(lambda: numpy.matmul(a, b, out=out), options.repeat)
    return {"n": n, "dtype": "float32", "seconds": seconds, "gflops": 2 * n**3 / seconds / 1e9}


def blas():
    found = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{numpy.__version__} with {found['name']} {found['version']}"


baseline.report("numpy", blas(), "matmul", options, [measure(n) for n in options.sizes])
