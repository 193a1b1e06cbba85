"""The time of a training iteration of ResNet-50 or ViT-B/16 in PyTorch, next to which Spillway's is measured.

python -m tools.reference.vision resnet50 cuda bf16 128 [compile]
"""

import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Bottleneck(nn.Module):
    def __init__(self, into, width, stride):
        super().__init__()
        conv = lambda i, o, k, s=1: nn.Conv2d(i, o, k, s, k // 2, bias=False)
        self.conv1, self.bn1 = conv(into, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.down = nn.Sequential(conv(into, 4 * width, 1, stride), nn.BatchNorm2d(4 * width)) if stride > 1 or into != 4 * width else nn.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.down(x))


def resnet50():
    layers, into = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for i, n in enumerate((3, 4, 6, 3)):
        for k in range(n):
            layers.append(Bottleneck(into, 64 << i, 2 if k == 0 and i > 0 else 1))
            into = 256 << i
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.cls, self.pos = nn.Conv2d(3, 768, 16, 16), nn.Parameter(torch.zeros(1, 1, 768)), nn.Parameter(torch.zeros(1, 197, 768))
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", 1e-6, True, True) for _ in range(12))
        self.norm, self.head = nn.LayerNorm(768, 1e-6), nn.Linear(768, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(len(x), -1, -1), x), 1) + self.pos
        for l in self.layers:
            x = l(x)
        return self.head(self.norm(x[:, 0]))


def main():
    name, device, kind, size = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    if device == "cpu":
        torch.set_num_threads(2)
    net = (resnet50() if name == "resnet50" else ViT()).to(device).train()
    x, y = torch.randn(size, 3, 224, 224, device=device), torch.zeros(size, dtype=torch.long, device=device)
    if name == "resnet50" and (device == "cuda" or "last" in sys.argv):
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if "compile" in sys.argv:
        net = torch.compile(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    cast = {"f32": None, "bf16": torch.bfloat16, "f16": torch.float16}[kind]

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, cast, cast is not None):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    rounds = 20 if device == "cuda" else 3
    for _ in range(5 if device == "cuda" else 1):
        step()
    wait()
    start = time.perf_counter()
    for _ in range(rounds):
        step()
    wait()
    took = (time.perf_counter() - start) / rounds
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0
    print(f"torch {name} {device} {kind} batch {size}: {1e3 * took:.2f} ms an iteration, {size / took:.1f} images/s, peak {peak:.2f} GiB")


if __name__ == "__main__":
    main()
