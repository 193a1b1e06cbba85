"""PyTorch's TransformerEncoder of 48 layers (width 2048, 16 heads, inner width 8192) with weights
in host memory, 16 × 512 positions, by Overflow on a GPU: forward, in tf32. A GPU that could
hold the model makes Overflow choose otherwise, so it is told to offload, and how many layers
it may bring at once: as many as fit 4 GiB. Training is not measured: its backward has
tensors on two devices. Needs torch and overflow."""

import overflow
import torch
from overflow.enums import ExecutionStrategy

import baseline

LAYERS, WIDTH, HEADS, INNER = 48, 2048, 16, 8192
ROWS, POSITIONS = 16, 512
CHUNK = 4  # layers of 201 MB, beside activations of 0.8 GB


def offloaded(chunk):
    """The model by Overflow: layer by layer for a chunk of 0."""
    kind = overflow.DynamicMemoryModule
    kind._determine_strategy = lambda self: ExecutionStrategy.CPU_OFFLOAD
    kind._should_use_chunked_offloading = lambda self: chunk > 0
    kind._calculate_optimal_chunk_size = lambda self, *_: chunk
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()
    return kind(model, overflow.MemoryConfig(enable_profiling=False))


def measure(name, chunk, x, repeat):
    model = offloaded(chunk)

    def forward():
        with torch.no_grad():
            model(x)
        torch.cuda.synchronize()

    torch.cuda.reset_peak_memory_stats()
    seconds = baseline.best(forward, repeat)
    return {"row": 0, "baseline": name, "seconds": seconds, "peak": torch.cuda.max_memory_allocated()}


def main():
    options = baseline.arguments(__doc__, repeat=2).parse_args()
    torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    x = torch.randn(ROWS, POSITIONS, WIDTH, device="cuda")
    results = []
    for name, chunk in [("Overflow", 0), ("Overflow in chunks", CHUNK)]:
        try:
            results.append(measure(name, chunk, x, options.repeat))
        except Exception as e:  # the other way still counts
            results.append({"row": -1, "baseline": name, "error": repr(e)})
    version = f"overflow {overflow.__version__} with torch {torch.__version__}"
    baseline.report("overflow", version, "encoder", options, results)


main()
