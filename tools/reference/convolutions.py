"""Times of PyTorch's convolutions and their gradients on two cores, in milliseconds, the better of its memory layouts.

Beside it: go test ./device/cpu -run XXX -bench Convolutions
"""
import time

import torch

torch.set_num_threads(2)
# name, x [B S.. C], w [O C/groups K..], stride, padding, dilation, groups
CASES = [
    ("3x3 of 64", [8, 56, 56, 64], [64, 64, 3, 3], 1, 1, 1, 1),
    ("3x3 of 128", [8, 28, 28, 128], [128, 128, 3, 3], 1, 1, 1, 1),
    ("3x3 of 256", [8, 14, 14, 256], [256, 256, 3, 3], 1, 1, 1, 1),
    ("3x3 of 512", [8, 7, 7, 512], [512, 512, 3, 3], 1, 1, 1, 1),
    ("3x3 stride 2", [8, 56, 56, 128], [128, 128, 3, 3], 2, 1, 1, 1),
    ("1x1", [8, 14, 14, 1024], [256, 1024, 1, 1], 1, 0, 1, 1),
    ("1x1 stride 2", [8, 56, 56, 256], [512, 256, 1, 1], 2, 0, 1, 1),
    ("7x7 stride 2 of 3", [8, 112, 112, 3], [64, 3, 7, 7], 2, 3, 1, 1),
    ("3x3 stride 2 of 3", [8, 224, 224, 3], [32, 3, 3, 3], 2, 1, 1, 1),
    ("depthwise 7x7", [8, 28, 28, 192], [192, 1, 7, 7], 1, 3, 1, 192),
    ("depthwise 3x3", [8, 56, 56, 144], [144, 1, 3, 3], 1, 1, 1, 144),
    ("32 groups", [8, 28, 28, 256], [256, 8, 3, 3], 1, 1, 1, 32),
    ("dilated", [8, 28, 28, 128], [128, 128, 3, 3], 1, 2, 2, 1),
    ("patches of 16", [8, 224, 224, 3], [768, 3, 16, 16], 16, 0, 1, 1),
    ("1d 3", [8, 400, 512], [512, 512, 3], 1, 1, 1, 1),
    ("1d 7", [8, 1600, 64], [64, 64, 7], 1, 3, 1, 1),
    ("1d 10 stride 5", [4, 16000, 1], [512, 1, 10], 5, 0, 1, 1),
    ("1d depthwise 31", [8, 400, 256], [256, 1, 31], 1, 15, 1, 256),
    ("3d of 32", [2, 16, 28, 28, 32], [32, 32, 3, 3, 3], 1, 1, 1, 1),
    ("3d of 64", [2, 8, 14, 14, 64], [128, 64, 3, 3, 3], 1, 1, 1, 1),
    ("3d stride 2 of 3", [2, 16, 56, 56, 3], [64, 3, 3, 7, 7], 2, 3, 1, 1),
]
for name, xs, ws, stride, padding, dilation, groups in CASES:
    n = len(xs) - 2
    x, w = torch.rand(xs).movedim(-1, 1), torch.rand(ws)
    best = [float("inf")] * 3
    for layout in [torch.contiguous_format] + {2: [torch.channels_last], 3: [torch.channels_last_3d]}.get(n, []):
        x, w = x.contiguous(memory_format=layout), w.contiguous(memory_format=layout)
        how = [stride] * n, [padding] * n, [dilation] * n, False, [0] * n, groups
        forward = lambda: torch.ops.aten.convolution(x, w, None, *how)
        dy = torch.rand_like(forward())
        passes = [forward] + [lambda mask=mask: torch.ops.aten.convolution_backward(dy, x, w, None, *how, mask)
                              for mask in ([True, False, False], [False, True, False])]
        for i, run in enumerate(passes):
            for _ in range(10):
                start = time.perf_counter()
                run()
                best[i] = min(best[i], (time.perf_counter() - start) * 1e3)
    print(name, *["%.2f" % b for b in best], flush=True)
