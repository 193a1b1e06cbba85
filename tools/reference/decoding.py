"""Tokens a second of transformers on this GPU: a Llama of the 8B shape with random bf16 weights and caches of a fixed size.

It makes no fixture; its numbers stand next to those of `spillway bench generate llama-3-8b`. Four ways of a decoding step:

    eager      each op is launched by itself
    graph      the same ops, captured as one CUDA graph
    layers     torch.compile of a layer, which all layers share, and one CUDA graph of the step: seconds to compile
    compiled   torch.compile of the whole model, mode reduce-overhead: minutes to compile

    python -m tools.reference.decoding [--prompt 960] [--tokens 48] [--batch 1] [--layers 32] [--ways eager,graph,layers]
"""

import argparse
import time
import traceback

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache


class Rows:
    """Keys and values of a layer. Where the next row goes is a tensor, so that a captured step can be repeated."""

    def __init__(self, batch, config, length, at):
        size = (batch, config.num_key_value_heads, length, config.hidden_size // config.num_attention_heads)
        self.keys, self.values, self.at = torch.zeros(size, device="cuda"), torch.zeros(size, device="cuda"), at

    def update(self, keys, values, *args, **kwargs):
        self.keys.index_copy_(2, self.at, keys)
        self.values.index_copy_(2, self.at, values)
        return self.keys, self.values


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--prompt", type=int, default=960)
    p.add_argument("--tokens", type=int, default=48)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--layers", type=int, default=32)
    p.add_argument("--ways", default="eager,graph,layers")
    a = p.parse_args()
    began = time.time()
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    torch._dynamo.config.recompile_limit = 64
    with torch.device("cuda"):
        config = LlamaConfig(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=a.layers, num_attention_heads=32, num_key_value_heads=8,
                             max_position_embeddings=8192, rope_theta=500000.0, attn_implementation="sdpa")
        model = LlamaForCausalLM(config).eval()
    print(f"model in {time.time() - began:.1f} s, torch {torch.__version__}", flush=True)
    length = a.prompt + a.tokens + 32
    prompt = torch.randint(0, 128000, (a.batch, a.prompt), device="cuda")
    places = torch.arange(length, device="cuda")
    at, token = torch.zeros(1, dtype=torch.long, device="cuda"), torch.zeros(a.batch, 1, dtype=torch.long, device="cuda")

    def forward(tokens, positions, layers, caches):
        x = model.model.embed_tokens(tokens)
        mask = (places[None, :] <= positions[:, None])[None, None]
        ids = positions[None, :]
        turned = model.model.rotary_emb(x, position_ids=ids)
        for layer, cache in zip(layers, caches):
            x = layer(x, attention_mask=mask, position_ids=ids, past_key_values=cache, use_cache=True, cache_position=positions, position_embeddings=turned)
            x = x[0] if isinstance(x, tuple) else x
        return model.lm_head(model.model.norm(x[:, -1:])).argmax(-1)

    def timed(name, first, step):
        for _ in range(8):
            step()
        torch.cuda.synchronize()
        begin = time.time()
        for _ in range(a.tokens):
            step()
        torch.cuda.synchronize()
        took = (time.time() - begin) / a.tokens
        print(f"transformers {name}: prompt {a.batch * a.prompt / first:.0f} tok/s, decode {a.batch / took:.1f} tok/s, after {time.time() - began:.0f} s", flush=True)

    def run(name, layers, captured):
        caches = [Rows(a.batch, config, length, at) for _ in model.model.layers]
        for cache in caches:
            cache.at = places[: a.prompt]
        torch.cuda.synchronize()
        begin = time.time()
        first = forward(prompt, places[: a.prompt], model.model.layers, caches)
        torch.cuda.synchronize()
        took = time.time() - begin
        for cache in caches:
            cache.at = at
        at.fill_(a.prompt)
        token.copy_(first)

        def step():
            token.copy_(forward(token, at, layers, caches))
            at.add_(1)

        if captured:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            at.fill_(a.prompt)
            step = graph.replay
        timed(name, took, step)

    def whole(name):
        cache = StaticCache(config=config, max_cache_len=length)
        begin = time.time()
        token = model(prompt, past_key_values=cache, cache_position=places[: a.prompt], use_cache=True).logits[:, -1:].argmax(-1)
        torch.cuda.synchronize()
        took = time.time() - begin
        compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        state = [token, a.prompt]

        def step():
            state[0] = compiled(state[0].clone(), past_key_values=cache, cache_position=places[state[1] : state[1] + 1].clone(), use_cache=True).logits[:, -1:].argmax(-1)
            state[1] += 1

        timed(name, took, step)

    for way in a.ways.split(","):
        try:
            with torch.inference_mode():
                if way == "eager":
                    run(way, list(model.model.layers), False)
                elif way == "graph":
                    run(way, list(model.model.layers), True)
                elif way == "layers":
                    for layer in model.model.layers:
                        layer.self_attn.layer_idx = 0
                    run(way, [torch.compile(layer, fullgraph=True, dynamic=False) for layer in model.model.layers], True)
                elif way == "compiled":
                    for i, layer in enumerate(model.model.layers):
                        layer.self_attn.layer_idx = i
                    whole(way)
                else:
                    raise SystemExit(f"--ways {way}: eager, graph, layers, compiled")
        except Exception:
            print(f"transformers {way}: {traceback.format_exc()[-1500:]}", flush=True)


main()
