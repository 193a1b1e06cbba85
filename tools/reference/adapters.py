"""LoRA adapters as the PEFT library makes them, beside the tiny models of
testdata/reference, with the logits they give.

Run with `python -m tools.reference.adapters` from the root of the repository; it needs
requirements-quant.txt. The folders go to hf/testdata/adapters.
"""

import peft
import safetensors.torch
import torch
import transformers

from . import fixture

FOLDER = fixture.ROOT.parents[1] / "hf" / "testdata" / "adapters"

# Adapters start at random, both halves, so that each changes the logits.
ADAPTERS = {
    "llama": ("llama", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"]}),
    "llama-all": ("llama", {"r": 3, "lora_alpha": 6, "target_modules": "all-linear", "use_rslora": True, "lora_dropout": 0.1}),
    "gpt2": ("gpt2", {"r": 2, "lora_alpha": 1.5, "target_modules": ["c_attn"], "fan_in_fan_out": True}),
}


def make(name):
    base, options = ADAPTERS[name]
    torch.manual_seed(len(name))
    path = f"testdata/reference/{base}"
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **options)
    model = peft.get_peft_model(model, config).eval()
    model.save_pretrained(FOLDER / name)
    (FOLDER / name / "README.md").unlink()
    ids = torch.arange(10)[None] * 3 % model.config.vocab_size
    logits = model(ids).logits[0].detach().contiguous()
    safetensors.torch.save_file({"tokens": ids[0].clone(), "logits": logits}, FOLDER / f"{name}.safetensors")
    for file in FOLDER.rglob("*.safetensors"):
        file.chmod(0o644)
    print(f"{name}: {sum('lora' in n for n, _ in model.named_parameters())} tensors")


def main():
    fixture.repeatable()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ADAPTERS:
        make(name)


if __name__ == "__main__":
    main()
