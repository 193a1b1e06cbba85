"""Training iterations of a Llama of 134 million params in float32 on a GPU, 4 × 512 tokens,
with PyTorch's plain AdamW: what torch-optstate begins from. "state" is what the optimizer
keeps, in bytes. Needs torch and transformers."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import baseline

ROWS, TOKENS = 4, 512


def model():
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        max_position_embeddings=2048,
        use_cache=False,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        return LlamaForCausalLM(config).train()


def measure(name, repeat, **kind):
    made = model()
    optimizer = torch.optim.AdamW(made.parameters(), lr=3e-4, **kind)
    ids = torch.randint(32000, (ROWS, TOKENS), device="cuda")

    def iteration():
        optimizer.zero_grad(set_to_none=True)
        made(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        torch.cuda.synchronize()

    iteration()
    torch.cuda.reset_peak_memory_stats()
    seconds = baseline.best(iteration, repeat)
    kept = sum(t.numel() * t.element_size() for s in optimizer.state.values() for t in s.values())
    return {"row": 0, "baseline": name, "seconds": seconds, "peak": torch.cuda.max_memory_allocated(), "state": kept}


def main():
    options = baseline.arguments(__doc__, repeat=9).parse_args()
    torch.set_num_threads(options.threads)
    results = [measure("eager", options.repeat), measure("eager fused", options.repeat, fused=True)]
    baseline.report("torch", "torch " + torch.__version__, "states_gpu", options, results)


main()
