"""Block codecs and 8-bit optimizers, as bitsandbytes computes them on the CPU.

Run with `python -m tools.reference.quant` from the root of the repository; it needs
bitsandbytes in addition to the packages of requirements.txt (see requirements-quant.txt).
The files go to quant/testdata and quant/stored/testdata.

Where bitsandbytes' native CPU code is off, its portable PyTorch code, which agrees with
its GPU kernels, is used instead (portable below): natively, 8-bit codes are looked up by
x rounded to 1/32767, so that 0 becomes 2e-5 and no small number keeps its code, and
4-bit decoding takes the absmax of wrong blocks where a row is not whole blocks long.
"""

import torch
import bitsandbytes as bnb
import bitsandbytes.backends.cpu.ops as native
import safetensors.torch
import transformers
from bitsandbytes import functional as F

from . import fixture

BNB = fixture.ROOT.parents[1] / "quant" / "stored" / "testdata"
FOLDER = fixture.ROOT.parents[1] / "quant" / "testdata"


def portable(name, *arguments):
    """Runs the PyTorch form of one of bitsandbytes' operations."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
    return getattr(torch.ops.bitsandbytes, name).default.redispatch(keys, *arguments)


def write(name, tensors):
    FOLDER.mkdir(parents=True, exist_ok=True)
    plain = {k: tensors[k].contiguous() for k in sorted(tensors)}
    safetensors.torch.save_file(plain, FOLDER / (name + ".safetensors"))
    print(f"{name}: {len(plain)} tensors")


def inputs():
    """Numbers that a codec could get wrong. Blocks have 64 elements, the last one of
    most cases is cut short, and some end in the middle of a byte."""
    g = fixture.stream("quant inputs")
    spread = torch.randn(200, generator=g) * torch.pow(10.0, torch.randint(-6, 1, (200,), generator=g))
    values = F.get_4bit_type("nf4", device="cpu")
    middles = (values[:-1] + values[1:]) / 2
    near = torch.cat([middles, torch.nextafter(middles, torch.tensor(2.0)), torch.nextafter(middles, torch.tensor(-2.0))])
    return {
        "random": torch.randn(1000, generator=g),
        "odd": torch.randn(131, generator=g),
        "one": torch.tensor([-0.3]),
        "constant": torch.full((130,), 0.7),
        "negative": torch.full((64,), -3.0),
        "zero": torch.zeros(70),
        "denormal": torch.randn(128, generator=g) * 1e-40,
        "huge": torch.randn(128, generator=g) * 1e38 / 4,
        "spread": spread,
        "middles": torch.cat([near, torch.tensor([1.0]).expand(19)]),  # 64: the absmax is 1
    }


def four_bit():
    out = {}
    for case, x in inputs().items():
        out[case] = x
        for kind in ("nf4", "fp4"):
            codes, absmax = portable("quantize_4bit", x, 64, kind, torch.uint8)
            out[f"{case}.{kind}.codes"] = codes.flatten()
            out[f"{case}.{kind}.absmax"] = absmax
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                back = portable("dequantize_4bit", codes, absmax, 64, kind, [1, len(x)], dtype)
                out[f"{case}.{kind}.{str(dtype)[6:]}"] = back.flatten()
    for kind in ("nf4", "fp4"):
        out[f"{kind}.values"] = F.get_4bit_type(kind, device="cpu")
    write("fourbit", out)


def scales():
    """Double quantization of 300 absmax: two groups, the second cut short."""
    g = fixture.stream("quant scales")
    absmax = torch.rand(300, generator=g) * 0.1 + 0.01
    offset = absmax.mean()
    values = F.create_dynamic_map()
    codes, groups = portable("quantize_blockwise", absmax - offset, values, 256)
    back = torch.ops.bitsandbytes.dequantize_blockwise(codes, groups, values, 256, torch.float32) + offset
    write("scales", {"absmax": absmax, "offset": offset.reshape(1), "codes": codes, "groups": groups, "decoded": back})


def dynamic():
    out = {}
    for sign in ("signed", "unsigned"):
        values = F.create_dynamic_map(sign == "signed")
        out[sign + ".values"] = values
        for case, x in inputs().items():
            x = x if sign == "signed" else x.abs()
            codes, absmax = portable("quantize_blockwise", x, values, 256)
            out[f"{case}.{sign}.codes"], out[f"{case}.{sign}.absmax"] = codes, absmax
            back = torch.ops.bitsandbytes.dequantize_blockwise(codes, absmax, values, 256, torch.float32)
            out[f"{case}.{sign}.decoded"] = back
            out[case] = inputs()[case]
    write("dynamic", out)


def rows():
    """LLM.int8: rows of different size, one of zeros."""
    w = torch.randn(5, 37, generator=fixture.stream("quant rows")) * torch.tensor([[1.0], [1e-3], [30.0], [0.0], [7.0]])
    codes, absmax, _ = F.int8_vectorwise_quant(w.half())
    write("rows", {"w": w, "codes": codes, "absmax": absmax, "decoded": F.int8_vectorwise_dequant(codes, absmax)})


def outliers():
    """A matmul of LLM.int8 with two columns of outliers, in f16; it is written to
    device/cpu/testdata."""
    g = fixture.stream("quant outliers")
    x = torch.randn(6, 48, generator=g)
    x[1, 3], x[4, 40], x[5, 40] = 8.0, -7.5, 61.0
    bias = torch.randn(9, generator=g).half()
    codes, scales, _ = F.int8_vectorwise_quant(torch.randn(9, 48, generator=g).half())
    rows, sizes, columns = F.int8_vectorwise_quant(x.half(), threshold=6.0)
    made = torch.ops.bitsandbytes.int8_mixed_scaled_mm(x.half(), rows, codes, sizes, scales, columns, bias)
    y = made[0] if isinstance(made, tuple) else made
    folder = fixture.ROOT.parents[1] / "device" / "cpu" / "testdata"
    folder.mkdir(exist_ok=True)
    out = {"x": x, "codes": codes, "scales": scales, "bias": bias.float(), "y": y.float()}
    safetensors.torch.save_file({k: v.contiguous() for k, v in out.items()}, folder / "outliers.safetensors")
    print(f"outliers in columns {columns.tolist()}")


def floats():
    """8-bit floats over their whole range and beyond, as PyTorch rounds them."""
    g = fixture.stream("quant floats")
    x = torch.cat([torch.randn(2000, generator=g) * torch.pow(2.0, torch.randint(-20, 18, (2000,), generator=g)), torch.tensor([0.0, -0.0])])
    write("floats", {"x": x, "e4m3": x.to(torch.float8_e4m3fn).view(torch.uint8), "e5m2": x.to(torch.float8_e5m2).view(torch.uint8)})


OPTIMIZERS = {
    "adamw": (bnb.optim.AdamW8bit, {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}),
    "adam": (bnb.optim.Adam8bit, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0}),
    "lion": (bnb.optim.Lion8bit, {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1}),
}
STEPS, ELEMENTS = 4, 700  # three blocks, the last cut short


def optimizers():
    """Gradients have magnitudes over three decades and a few exact zeros. Codes are by the
    portable code."""
    native._quant_blockwise_fp32_direct = requantize
    out = {}
    for name, (kind, options) in OPTIMIZERS.items():
        g = fixture.stream("quant optimizer " + name)
        p = torch.nn.Parameter(torch.randn(ELEMENTS, generator=g))
        optimizer = kind([p], min_8bit_size=1, **options)
        out[name + ".w0"] = p.detach().clone()
        for step in range(1, STEPS + 1):
            size = torch.pow(10.0, -3 * torch.rand(ELEMENTS, generator=g))
            p.grad = torch.randn(ELEMENTS, generator=g) * size
            p.grad[:7] = 0
            out[f"{name}.g{step}"] = p.grad.clone()
            optimizer.step()
            out[f"{name}.w{step}"] = p.detach().clone()
            for k, v in optimizer.state[p].items():
                if k in ("state1", "state2", "absmax1", "absmax2"):
                    out[f"{name}.{k}.{step}"] = v.clone()
    write("optimizers", out)


def requantize(x, values, absmax_out, out, blocksize):
    codes, absmax = portable("quantize_blockwise", x, values, blocksize)
    out.copy_(codes)
    absmax_out.copy_(absmax)


QUANTIZED = {
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
    "fp4": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
    "int8": {"load_in_8bit": True},
}


def folders():
    """A tiny Llama, plain and as transformers quantizes and saves it, and what two of its
    quantized weights decode to."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=None,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).bfloat16().save_pretrained(BNB / "plain")
    decoded = {}
    for name, options in QUANTIZED.items():
        model = transformers.AutoModelForCausalLM.from_pretrained(
            BNB / "plain", device_map="cpu", dtype=torch.bfloat16,
            quantization_config=transformers.BitsAndBytesConfig(**options),
        )  # fmt: skip
        model.save_pretrained(BNB / name)
        for module, layer in model.named_modules():
            if not module.endswith(("q_proj", "down_proj")):
                continue
            if isinstance(layer, bnb.nn.Linear4bit):
                state = layer.weight.quant_state
                absmax = state.absmax
                if state.nested:
                    absmax = F.dequantize_blockwise(absmax, state.state2) + state.offset
                decoded[f"{name}.{module}"] = portable(
                    "dequantize_4bit", layer.weight.data, absmax, 64, state.quant_type, state.shape, torch.float32
                )
            elif isinstance(layer, bnb.nn.Linear8bitLt):
                decoded[f"{name}.{module}"] = F.int8_vectorwise_dequant(layer.weight.data, layer.weight.SCB)
    plain = {k: v.contiguous() for k, v in decoded.items()}
    safetensors.torch.save_file(plain, BNB / "decoded.safetensors")
    for path in BNB.rglob("*.safetensors"):
        path.chmod(0o644)
    print(f"{len(QUANTIZED)} folders, {len(plain)} weights")


def main():
    fixture.repeatable()
    for part in (four_bit, scales, dynamic, rows, outliers, floats, optimizers, folders):
        part()


if __name__ == "__main__":
    main()
