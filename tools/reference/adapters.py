"""LoRA adapters that the PEFT library makes for the tiny models of testdata/reference,
with their logits and the gradients of a loss.

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
    "dora": ("qwen2", {"r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "o_proj", "up_proj"], "use_dora": True}),
    "dora-gpt2": ("gpt2", {"r": 2, "lora_alpha": 3, "target_modules": ["c_attn", "c_proj"], "use_dora": True, "fan_in_fan_out": True}),
    "bias-all": ("qwen2", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "down_proj"], "bias": "all"}),
    "bias-lora-only": ("qwen2", {"r": 2, "lora_alpha": 4, "target_modules": ["v_proj"], "bias": "lora_only", "lora_bias": True}),
    "saved": ("llama", {"r": 2, "lora_alpha": 4, "target_modules": "all-linear", "modules_to_save": ["lm_head", "norm"]}),
    "patterns": ("llama", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "k_proj", "mlp.up_proj"], "use_rslora": True,
                           "rank_pattern": {"k_proj": 3, r"layers\.1\..*\.up_proj": 5}, "alpha_pattern": {"up_proj": 7},
                           "exclude_modules": ["layers.0.self_attn.q_proj"]}),
    "layers": ("llama", {"r": 2, "lora_alpha": 4, "target_modules": ["v_proj", "gate_proj"], "layers_to_transform": 1, "layers_pattern": "layers"}),
}  # fmt: skip


def make(name):
    base, options = ADAPTERS[name]
    torch.manual_seed(len(name))
    path = f"testdata/reference/{base}"
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **options)
    model = peft.get_peft_model(model, config).eval()
    with torch.no_grad():  # everything trainable differs from the base, also magnitudes and modules trained whole
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(FOLDER / name)
    (FOLDER / name / "README.md").unlink()
    ids = torch.arange(10)[None] * 3 % model.config.vocab_size
    out = model(ids, labels=ids)
    out.loss.backward()
    made = {"tokens": ids[0].clone(), "logits": out.logits[0].detach().contiguous(), "loss": out.loss.detach().reshape(1)}
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            made["grad." + plain(key)] = parameter.grad
    safetensors.torch.save_file(made, FOLDER / f"{name}.safetensors")
    for file in FOLDER.rglob("*.safetensors"):
        file.chmod(0o644)
    print(f"{name}: {sum('lora' in n for n, _ in model.named_parameters())} tensors")


def plain(key):
    """The name a trained tensor has in the adapter's file, without its prefix."""
    for wrapping in (".default.weight", ".default"):
        key = key.replace(wrapping, ".weight" if wrapping.endswith("weight") and "magnitude" not in key else "")
    return key.removeprefix("base_model.model.").replace(".base_layer", "").replace(".modules_to_save", "")


def main():
    fixture.repeatable()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ADAPTERS:
        make(name)


if __name__ == "__main__":
    main()
