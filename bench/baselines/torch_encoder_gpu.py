"""PyTorch's TransformerEncoder of 48 layers (width 2048, 16 heads, inner width 8192) in tf32,
all of it on the GPU, 16 × 512 positions: forward, and a training iteration with fused AdamW.
Needs torch and about 90 GB of the GPU."""

import torch

import baseline

LAYERS, WIDTH, HEADS, INNER = 48, 2048, 16, 8192
ROWS, POSITIONS = 16, 512


def main():
    options = baseline.arguments(__doc__, repeat=5).parse_args()
    torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    with torch.device("cuda"):
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0.0, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        x, target = torch.randn(2, ROWS, POSITIONS, WIDTH).unbind()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def forward():
        with torch.no_grad():
            model(x)
        torch.cuda.synchronize()

    def train():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(model(x), target).backward()
        optimizer.step()
        torch.cuda.synchronize()

    results = []
    for row, work in enumerate([forward, train]):
        model.train(row == 1)
        torch.cuda.reset_peak_memory_stats()
        seconds = baseline.best(work, options.repeat)
        results.append(
            {"row": row, "baseline": "resident", "seconds": seconds, "peak": torch.cuda.max_memory_allocated()}
        )
    baseline.report("torch", "torch " + torch.__version__, "encoder_gpu", options, results)


main()
