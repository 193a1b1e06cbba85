"""Where accelerate puts the blocks of flat models: placement/testdata/accelerate.json.

A case is a model of an embedding, equal layers that are not split, and a head, with
limits for devices and host memory; the answers are accelerate's own device maps.
"""

import json
import pathlib
import random

import torch
from accelerate import infer_auto_device_map
from accelerate.utils import get_balanced_memory
from accelerate.utils.modeling import convert_file_size_to_int

OUT = pathlib.Path("placement/testdata/accelerate.json")
SIZES = ["10GiB", "10gib", "1.5GB", "800Mb", "5Kb", "3KiB", "2MB", "7MiB", "12345", "0.3GB", "9gb"]


class Leaf(torch.nn.Module):
    def __init__(self, elements):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(elements, device="meta"))


class Layer(torch.nn.Module):
    def __init__(self, elements):
        super().__init__()
        self.a, self.b = Leaf(elements // 3), Leaf(elements - elements // 3)


class Model(torch.nn.Module):
    def __init__(self, embed, layer, layers, head):
        super().__init__()
        self.embed = Leaf(embed)
        for i in range(layers):
            setattr(self, f"layer{i}", Layer(layer))
        self.head = Leaf(head)


def answer(model, memory, word):
    limits = dict(memory)
    if word != "sequential":
        limits = get_balanced_memory(model, limits, ["Layer"], low_zero=word == "balanced_low_0")
    got = infer_auto_device_map(model, limits, ["Layer"], clean_result=False)
    return {k: str(v) for k, v in got.items()}


def case(r):
    shape = {"embed": r.randint(1, 400), "layer": r.randint(3, 200), "layers": r.randint(2, 9), "head": r.randint(1, 400)}
    total = 4 * (shape["embed"] + shape["head"] + shape["layer"] * shape["layers"])
    memory = {i: r.randint(total // 10, total) for i in range(r.randint(1, 4))}
    if r.random() < 0.8:
        memory["cpu"] = r.randint(total // 4, 2 * total)
    model = Model(**shape)
    words = ["balanced", "balanced_low_0", "sequential"]
    return {**shape, "memory": {str(k): v for k, v in memory.items()}, "maps": {w: answer(model, memory, w) for w in words}}


def main():
    r = random.Random("placement")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    sizes = {s: convert_file_size_to_int(int(s) if s.isdigit() else s) for s in SIZES}
    cases = ",\n".join(json.dumps(case(r)) for _ in range(60))
    OUT.write_text(f'{{"sizes": {json.dumps(sizes)},\n"cases": [\n{cases}\n]}}\n')


if __name__ == "__main__":
    main()
