"""What all fixtures share: their folder, their random streams and how they are written.

All numbers are computed on the CPU by one thread, so that the same versions on the same
kind of CPU write the same bytes.
"""

import json
import platform
import re
import zlib
from pathlib import Path

import numpy
import safetensors
import safetensors.torch
import torch
import transformers

ROOT = Path(__file__).resolve().parents[2] / "testdata" / "reference"


def repeatable():
    """One thread and deterministic kernels: sums always run in the same order."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def versions():
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "safetensors": safetensors.__version__,
        "numpy": numpy.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def stream(name):
    """A random stream that depends on the fixture's name alone, so that adding
    a fixture leaves all others as they were."""
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def folder(name):
    path = ROOT / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_json(path, value):
    """Indented, but with each list of plain values on one line."""
    text = json.dumps(value, indent=1)
    text = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r",\s+", ", ", m[1]) + "]", text)
    path.write_text(text + "\n")


def write_tensors(path, tensors, metadata=None):
    """Writes float tensors as F32 and integers as I64, sorted by name.

    safetensors orders a file by type and name, so the bytes depend on the values only.
    """
    plain = {}
    for name in sorted(tensors):
        value = tensors[name].detach()
        plain[name] = (value.float() if value.is_floating_point() else value.long()).clone(
            memory_format=torch.contiguous_format
        )
    safetensors.torch.save_file(plain, path, metadata={"format": "pt", **(metadata or {})})


def relative(a, b):
    """The largest difference, as a share of the largest magnitude of b."""
    return ((a - b).abs().max() / b.abs().max()).item()
