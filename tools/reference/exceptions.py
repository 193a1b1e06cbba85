"""A model in bf16 with precision exceptions: some modules compute in f32. Their inputs are cast to f32, and
their outputs back to bf16, except for the logits.

Run with `python -m tools.reference.exceptions` from the root of the repository.
"""

import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path("testdata/reference/llama")
EXCEPTIONS = ("lm_head", "norm", "input_layernorm", "post_attention_layernorm", "mlp")


def compute_in_f32(name, module):
    module.float()
    module.register_forward_pre_hook(lambda m, given: tuple(x.float() for x in given))
    if name != "lm_head":
        module.register_forward_hook(lambda m, given, out: out.bfloat16())


def main():
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager")
    masters = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.bfloat16()
    for name, module in model.named_modules():
        if name.rsplit(".", 1)[-1] in EXCEPTIONS:
            compute_in_f32(name, module)
    for name, p in model.named_parameters():
        if p.dtype == torch.float32:
            p.data.copy_(masters[name])  # never rounded
    expect = load_file(FOLDER / "expect.safetensors")
    logits = model(expect["input_ids"].long()).logits
    assert logits.dtype == torch.float32
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), expect["targets"].long().flatten(), ignore_index=-100)
    loss.backward()
    grads = {"gradient." + n: p.grad for n, p in model.named_parameters() if p.dtype == torch.float32 and "up_proj" not in n and "gate_proj" not in n}
    save_file({"loss": loss.detach().reshape(1), **grads}, FOLDER / "exceptions.safetensors")
    print(f"loss {loss.item():.6f}, {len(grads)} gradients")


if __name__ == "__main__":
    main()
