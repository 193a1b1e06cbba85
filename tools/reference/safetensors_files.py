"""Makes safetensors/testdata with Hugging Face's own library, which the tests then read and reproduce.

Needs: safetensors, numpy, huggingface_hub. Run from the repository root: python tools/reference/safetensors_files.py
(The name avoids "safetensors.py", which would hide the library from this script.)
"""
import json
import pathlib

import numpy as np
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors import serialize_file
from safetensors.numpy import save_file

OUT = pathlib.Path("safetensors/testdata")

# Element types and their widths in bytes, in no particular order: the library sorts them.
TYPES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e5m2": 1, "float8_e4m3fn": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "float64": 8, "int64": 8, "uint64": 8,
}


def pattern(n):
    """Bytes the Go tests make the same way."""
    return bytes((i * 31 + n) % 251 for i in range(n))


def mixed():
    """Every element type, a scalar, an empty tensor, names that need escapes."""
    tensors = {}
    for dtype, width in TYPES.items():
        tensors[f"t.{dtype}"] = {"dtype": dtype, "shape": [2, 3], "data": pattern(6 * width)}
    tensors["scalar"] = {"dtype": "float32", "shape": [], "data": pattern(4)}
    tensors["empty"] = {"dtype": "float16", "shape": [0, 7], "data": b""}
    tensors['quote " backslash \\ tab \t bell \x07 é 漢 🙂 <&>'] = {"dtype": "uint8", "shape": [5], "data": pattern(5)}
    serialize_file(tensors, OUT / "mixed.safetensors", {"format": "pt"})


def values():
    """The numbers (i - 8) / 4, exact in every one of these types."""
    x = (np.arange(17) - 8) / 4
    save_file({f"x.{t}": x.astype(t) for t in ("float64", "float32", "float16")}, OUT / "values.safetensors")


def sharded():
    """A set of shards of at most 100 bytes, split and indexed as the hub's library does it."""
    state = {f"layer.{i}.{n}": np.full((i + 3, 2), i, np.float32) for i in range(4) for n in ("weight", "bias")}
    state["large"] = np.zeros(40, np.float32)
    split = split_state_dict_into_shards_factory(
        state, get_storage_size=lambda t: t.nbytes, max_shard_size=100, filename_pattern="model{suffix}.safetensors")
    folder = OUT / "sharded"
    folder.mkdir(exist_ok=True)
    for name, keys in split.filename_to_tensors.items():
        save_file({k: state[k] for k in keys}, folder / name, {"format": "pt"})
    index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


OUT.mkdir(parents=True, exist_ok=True)
mixed()
values()
sharded()
save_file({}, OUT / "none.safetensors")
