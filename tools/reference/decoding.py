"""Tokens a second of transformers on this GPU: a Llama of the 8B shape with random bf16 weights and a static cache.

It makes no fixture; its numbers stand next to those of `spillway bench generate llama-3-8b`.

    python -m tools.reference.decoding [--prompt 960] [--tokens 48] [--seconds 60] [--layers 32]
"""

import argparse
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--prompt", type=int, default=960)
    p.add_argument("--tokens", type=int, default=48)
    p.add_argument("--layers", type=int, default=32)
    p.add_argument("--seconds", type=float, default=60, help="leave torch.compile out where so much has passed")
    a = p.parse_args()
    began = time.time()
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        config = LlamaConfig(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=a.layers, num_attention_heads=32, num_key_value_heads=8,
                             max_position_embeddings=8192, rope_theta=500000.0, attn_implementation="sdpa")
        model = LlamaForCausalLM(config).eval()
    print(f"model in {time.time() - began:.1f} s", flush=True)
    prompt = torch.randint(0, 128000, (1, a.prompt), device="cuda")

    @torch.inference_mode()
    def run(forward, name):
        cache = StaticCache(config=config, max_cache_len=a.prompt + 2 * a.tokens + 16)
        at = torch.arange(a.prompt, device="cuda")
        torch.cuda.synchronize()
        begin = time.time()
        token = model(prompt, past_key_values=cache, cache_position=at, use_cache=True).logits[:, -1:].argmax(-1)
        torch.cuda.synchronize()
        first = time.time() - begin
        for i in range(a.tokens + 8):
            if i == 8:
                torch.cuda.synchronize()
                begin = time.time()
            position = torch.tensor([a.prompt + i], device="cuda")
            token = forward(token.clone(), past_key_values=cache, cache_position=position, use_cache=True).logits[:, -1:].argmax(-1)
        torch.cuda.synchronize()
        print(f"transformers {name}: prompt {a.prompt / first:.0f} tok/s, decode {a.tokens / (time.time() - begin):.1f} tok/s, after {time.time() - began:.0f} s", flush=True)

    run(model, "eager")
    if time.time() - began < a.seconds:
        run(torch.compile(model, mode="reduce-overhead", fullgraph=True), "compiled")


main()
