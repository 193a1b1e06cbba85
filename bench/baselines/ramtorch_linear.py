"""A stack of 16 linear layers of 4096 in bf16 whose weights rest in host memory, 4096 rows, by
RamTorch on a GPU: forward, and forward with backward and AdamW. Its layer and its streamed
model are measured, each with the AdamW it is shown with. Needs torch and ramtorch."""

import torch

import baseline
import ramtorch

LAYERS, WIDTH, ROWS = 16, 4096, 4096
DTYPE = torch.bfloat16


def layers(x, repeat):
    """ramtorch.Linear, with the AdamW of the package: bf16 weights and bf16 moments."""
    stack = [ramtorch.Linear(WIDTH, WIDTH, bias=False, dtype=DTYPE) for _ in range(LAYERS)]
    optimizer = ramtorch.AdamW([p for l in stack for p in l.parameters()], lr=1e-4)

    def run():
        y = x
        for layer in stack:
            y = layer(y)
        return y

    def forward():
        with torch.no_grad():
            run()
        torch.cuda.synchronize()

    def train():
        run().float().square().mean().backward()
        torch.cuda.synchronize()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()

    return forward, train


def streamed(x, repeat):
    """OffloadModel with a window of three, with PyTorch's fused AdamW on the CPU."""
    chunks = [torch.nn.Linear(WIDTH, WIDTH, bias=False, dtype=DTYPE) for _ in range(LAYERS)]
    model = ramtorch.OffloadModel(chunks, device="cuda:0", window=3, pin=0, keep_activations=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    target = torch.zeros(ROWS, WIDTH, device="cuda", dtype=DTYPE)

    def forward():
        with torch.no_grad():
            model(x)
        torch.cuda.synchronize()

    def train():
        model.step(x, targets=target, loss_fn=torch.nn.functional.mse_loss)
        model.flush_grads()
        torch.cuda.synchronize()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()

    return forward, train


def main():
    options = baseline.arguments(__doc__, repeat=5).parse_args()
    torch.set_num_threads(options.threads)
    x = torch.randn(ROWS, WIDTH, device="cuda", dtype=DTYPE)
    results = []
    for name, make in [("RamTorch Linear", layers), ("RamTorch OffloadModel", streamed)]:
        try:
            works = make(x, options.repeat)
            for row, work in enumerate(works):
                results.append({"row": row, "baseline": name, "seconds": baseline.best(work, options.repeat)})
        except Exception as e:  # a version may lack one of them; the other still counts
            results.append({"row": -1, "baseline": name, "error": repr(e)})
    baseline.report("ramtorch", f"ramtorch {ramtorch.__version__} with torch {torch.__version__}", "linear", options, results)


main()
