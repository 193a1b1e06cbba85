"""The block types of GGUF files, as the gguf package decodes and encodes them.

Run with `python -m tools.reference.gguf_types` from the root of the repository; it needs
gguf, numpy and safetensors alone. The file goes to quant/testdata.
"""

import zlib
from pathlib import Path

import gguf
import numpy
import safetensors.numpy

FILE = Path(__file__).resolve().parents[2] / "quant" / "testdata" / "gguf.safetensors"

# Where each type has its f16 scales, in bytes from the start of a block.
SCALES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}
ENCODED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4"]
BLOCKS = 4


def main():
    out = {}
    for name, scales in SCALES.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        random = numpy.random.default_rng(zlib.crc32(name.encode()))
        blocks = random.integers(0, 256, (BLOCKS, size), dtype=numpy.uint8)
        for at in scales:
            blocks[:, at : at + 2] = random.normal(0, 0.01, BLOCKS).astype(numpy.float16).view(numpy.uint8).reshape(BLOCKS, 2)
        if name == "MXFP4":
            blocks[:, 0] = [0, 1, 127, 254]
        out[f"{name.lower()}.blocks"] = blocks
        out[f"{name.lower()}.numbers"] = gguf.dequantize(blocks, kind).astype(numpy.float32)
    numbers = numpy.random.default_rng(7).normal(0, 1, (12, 32)).astype(numpy.float32)
    numbers[1] = 0
    numbers[2, 1:] = 0
    numbers[3] *= 1e-6
    numbers[4] = numpy.abs(numbers[4])
    numbers[5] = -numpy.abs(numbers[5])
    numbers[6] = 1
    out["numbers"] = numbers
    for name in ENCODED:
        out[f"{name.lower()}.encoded"] = gguf.quantize(numbers, gguf.GGMLQuantizationType[name])
    safetensors.numpy.save_file(out, FILE)
    print(f"{FILE.name}: {len(out)} tensors")


if __name__ == "__main__":
    main()
