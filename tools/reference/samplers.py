"""Logits as transformers' processors leave them, and the tokens drawn from them.

Run with `python -m tools.reference.samplers` from the root of the repository. The fixture
goes to generate/testdata/samplers.json. Penalties for presence and frequency, which
transformers does not have, are applied by OpenAI's formula, after the repetition penalty.
Which of equally likely tokens top-p removes first depends there on how torch.sort orders
equal numbers, which it does not promise; here it sorts stably.
"""

import base64
import functools
import math
import pathlib
import random

import numpy
import torch
from transformers.generation import logits_process as process

from .fixture import repeatable, versions, write_json

ROOT = pathlib.Path(__file__).parents[2]
MASK = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def uniform(seed, sequence, position):
    """The random number in [0, 1) of a position, with 24 bits."""
    stream = mix(seed ^ sequence * 0x9E3779B97F4A7C15 & MASK)
    return (mix((stream + position) & MASK) >> 40) / (1 << 24)


def packed(values):
    return base64.b64encode(values.numpy().astype("<f4").tobytes()).decode()


def processed(logits, prompt, generated, o):
    """The logits in the order in which transformers' generate changes them."""
    ids = torch.tensor([prompt + generated])
    scores = logits[None].clone()
    if o.get("logit_bias"):
        scores = process.SequenceBiasLogitsProcessor({(int(t),): b for t, b in o["logit_bias"].items()})(ids, scores)
    if o.get("repetition_penalty", 1.0) != 1.0:
        scores = process.RepetitionPenaltyLogitsProcessor(o["repetition_penalty"])(ids, scores)
    for t in set(generated):
        less = generated.count(t) * o.get("frequency_penalty", 0.0) + o.get("presence_penalty", 0.0)
        scores[0, t] -= numpy.float32(less)
    if o.get("temperature", 0.0) == 0.0:
        return scores[0]
    if o["temperature"] != 1.0:
        scores = process.TemperatureLogitsWarper(o["temperature"])(ids, scores)
    if o.get("top_k"):
        scores = process.TopKLogitsWarper(o["top_k"])(ids, scores)
    if o.get("top_p", 1.0) < 1.0:
        scores = process.TopPLogitsWarper(o["top_p"])(ids, scores)
    if o.get("min_p"):
        scores = process.MinPLogitsWarper(o["min_p"])(ids, scores)
    return scores[0]


def picked(scores, o, seed, sequence, position):
    """The token: the most likely one, or the first up to which probabilities exceed the random number."""
    if o.get("temperature", 0.0) == 0.0:
        return int(scores.argmax())
    sums = torch.softmax(scores.double(), dim=-1).cumsum(0)
    u = uniform(seed, sequence, position) * sums[-1].item()
    return int(torch.searchsorted(sums, torch.tensor(u, dtype=torch.float64), right=True))


def options(draw, vocab):
    """A random combination; each option is left out half of the time."""
    o = {}
    if draw.random() < 0.85:
        o["temperature"] = draw.choice([1.0, 0.7, 0.1, 1e-3, 1.5, 20.0, round(draw.uniform(0.05, 3), 3)])
        if draw.random() < 0.5:
            o["top_k"] = draw.choice([1, 2, 5, vocab, vocab + 7, draw.randint(1, vocab)])
        if draw.random() < 0.5:
            o["top_p"] = draw.choice([0.5, 0.9, 0.95, 0.999999, 1e-6, round(draw.uniform(0.01, 0.99), 3)])
        if draw.random() < 0.5:
            o["min_p"] = draw.choice([0.05, 0.1, 1.0, 1e-9, round(draw.random(), 3)])
    if draw.random() < 0.5:
        o["repetition_penalty"] = draw.choice([1.1, 1.3, 0.8, 5.0])
    if draw.random() < 0.4:
        o["presence_penalty"] = draw.choice([0.5, 2.0, -1.0])
    if draw.random() < 0.4:
        o["frequency_penalty"] = draw.choice([0.25, 1.5, -0.5])
    if draw.random() < 0.4:
        o["logit_bias"] = {str(draw.randrange(vocab)): draw.choice([-100.0, 5.0, -1.5, 0.25, 100.0]) for _ in range(draw.randint(1, 3))}
    return o


def logits_of(draw, generator, vocab):
    """Logits of several kinds: bell-shaped, steep, few values with many ties, some forbidden, all equal."""
    kind = draw.choice(["normal", "normal", "steep", "ties", "forbidden", "equal", "bf16"])
    values = torch.randn(vocab, generator=generator)
    if kind == "steep":
        values *= 30
    if kind == "ties":
        values = values.round()
    if kind == "bf16":
        values = (values * 4).bfloat16().float()
    if kind == "equal":
        values = torch.full((vocab,), draw.choice([0.0, -3.5, 1e4]))
    if kind == "forbidden":
        values[torch.rand(vocab, generator=generator) < 0.5] = -math.inf
        values[draw.randrange(vocab)] = 1.0
    return values


def main():
    repeatable()
    torch.sort = functools.partial(torch.sort, stable=True)
    draw, generator = random.Random(20), torch.Generator().manual_seed(20)
    cases = []
    for i in range(400):
        vocab = draw.choice([1, 2, 7, 16, 33, 33, 64]) if i % 80 else 500
        prompt = [draw.randrange(vocab) for _ in range(draw.randint(1, 6))]
        generated = [draw.randrange(vocab) for _ in range(draw.randint(0, 12))]
        logits, o = logits_of(draw, generator, vocab), options(draw, vocab)
        seed, sequence, position = draw.getrandbits(64), draw.randrange(4), len(prompt) + len(generated)
        scores = processed(logits, prompt, generated, o)
        if not torch.isfinite(scores.max()):
            continue
        cases.append({
            "options": o, "seed": str(seed), "sequence": sequence, "prompt": prompt, "generated": generated,
            "logits": packed(logits), "scores": packed(scores), "token": picked(scores, o, seed, sequence, position),
        })
    path = ROOT / "generate" / "testdata"
    path.mkdir(exist_ok=True)
    write_json(path / "samplers.json", {"versions": versions(), "cases": cases})


if __name__ == "__main__":
    main()
