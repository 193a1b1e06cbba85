"""Training iterations of a Llama of 1.1 billion params in bf16 on a GPU, 4 × 2048 tokens,
with PyTorch's fused AdamW: eager, compiled, and eager with checkpointing. Weights and
moments are bf16, without fp32 masters. Needs torch and transformers."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import baseline

ROWS, TOKENS = 4, 2048


def model():
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        use_cache=False,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        return LlamaForCausalLM(config).to(torch.bfloat16).train()


def measure(row, name, repeat, checkpointing=False, compiled=False):
    made = model()
    if checkpointing:
        made.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-4, fused=True)
    run = torch.compile(made) if compiled else made
    ids = torch.randint(32000, (ROWS, TOKENS), device="cuda")

    def iteration():
        optimizer.zero_grad(set_to_none=True)
        run(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        torch.cuda.synchronize()

    iteration()
    torch.cuda.reset_peak_memory_stats()
    seconds = baseline.best(iteration, repeat)
    return {"row": row, "baseline": name, "seconds": seconds, "peak": torch.cuda.max_memory_allocated()}


def main():
    options = baseline.arguments(__doc__, repeat=5).parse_args()
    torch.set_num_threads(options.threads)
    results = [
        measure(0, "eager", options.repeat),
        measure(1, "eager", options.repeat, checkpointing=True),
        measure(0, "compiled", options.repeat, compiled=True),
    ]
    baseline.report("torch", "torch " + torch.__version__, "train_gpu", options, results)


main()
