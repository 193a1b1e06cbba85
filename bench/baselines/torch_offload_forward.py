"""Forward passes of a Llama of 8 billion params whose weights rest in host memory, by
accelerate's cpu_offload, in bf16 on a GPU. Needs torch, transformers and accelerate."""

import torch
from accelerate import cpu_offload
from transformers import LlamaConfig, LlamaForCausalLM

import accelerate
import baseline

SIZES = [(1, 512), (4, 2048)]  # rows and tokens, in the order of the rows of bench gpu


def model():
    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rope_theta=500000.0,
        use_cache=False,
    )
    with torch.device("meta"):
        made = LlamaForCausalLM(config).to(torch.bfloat16)
    made = made.to_empty(device="cpu").eval()
    for p in made.parameters():  # random on the GPU, which is quicker
        p.data.copy_(torch.randn(p.shape, device="cuda", dtype=torch.bfloat16) * 0.02)
    made.model.rotary_emb = type(made.model.rotary_emb)(config)  # its table is no param
    return cpu_offload(made, execution_device=torch.device("cuda:0"))


def main():
    parser = baseline.arguments(__doc__, repeat=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    made, results = model(), []
    with torch.no_grad():
        for row, (rows, tokens) in enumerate(SIZES):
            ids = torch.randint(128256, (rows, tokens), device="cuda")

            def forward():
                made(ids, use_cache=False)
                torch.cuda.synchronize()

            torch.cuda.reset_peak_memory_stats()
            seconds = baseline.best(forward, options.repeat)
            results.append(
                {"row": row, "baseline": "accelerate", "seconds": seconds, "peak": torch.cuda.max_memory_allocated()}
            )
    version = f"accelerate {accelerate.__version__} with torch {torch.__version__}"
    baseline.report("accelerate", version, "offload_forward", options, results)


main()
