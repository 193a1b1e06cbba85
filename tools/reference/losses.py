"""Losses of a linear layer's outputs, with the gradients of its weights, as JSON.

Run with `python -m tools.reference.losses` from the root of the repository.
"""

import torch
import torch.nn.functional as F

from . import fixture

ROWS, WIDTH, OUT = 6, 5, 4


def contrastive(y, _):
    a, b = F.normalize(y[:, :2], dim=-1), F.normalize(y[:, 2:], dim=-1)
    logits, own = 3.0 * a @ b.T, torch.arange(ROWS)
    return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2


def dpo(y, _):
    reference = torch.tensor([0.3, -0.2])
    margin = 0.5 * ((y[:, 0] - y[:, 1]) - (reference[0] - reference[1]))
    return (-0.9 * F.logsigmoid(margin) - 0.1 * F.logsigmoid(-margin)).mean()


WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 0.25])
LOSSES = {
    "mse": lambda y, b: F.mse_loss(y, b["target"]),
    "l1": lambda y, b: F.l1_loss(y, b["target"]),
    "huber": lambda y, b: F.huber_loss(y, b["target"], delta=0.7),
    "smooth_l1": lambda y, b: F.smooth_l1_loss(y, b["target"], beta=0.5),
    "bce_with_logits": lambda y, b: F.binary_cross_entropy_with_logits(y, b["share"]),
    "bce_pos_weight": lambda y, b: F.binary_cross_entropy_with_logits(y, b["share"], pos_weight=WEIGHTS),
    "bce": lambda y, b: F.binary_cross_entropy(torch.sigmoid(y), b["share"]),
    "cross_entropy": lambda y, b: F.cross_entropy(y, b["targets"]),
    "smoothing": lambda y, b: F.cross_entropy(y, b["targets"], label_smoothing=0.2),
    "weights": lambda y, b: F.cross_entropy(y, b["targets"], weight=WEIGHTS),
    "weights_smoothing": lambda y, b: F.cross_entropy(y, b["targets"], weight=WEIGHTS, label_smoothing=0.2),
    "distillation": lambda y, b: 4 * F.kl_div(F.log_softmax(y / 2, -1), F.log_softmax(b["target"] / 2, -1), log_target=True, reduction="batchmean"),
    "contrastive": contrastive,
    "flow": lambda y, b: F.mse_loss(y, b["data"] - b["noise"]),
    "dpo": dpo,
}


def main():
    fixture.repeatable()
    generator = fixture.stream("losses")
    normal = lambda *shape: torch.randn(*shape, generator=generator)
    batch = {
        "input": normal(ROWS, WIDTH),
        "target": normal(ROWS, OUT),
        "share": torch.sigmoid(normal(ROWS, OUT)),
        "targets": torch.tensor([2, 0, -100, 3, 1, 2]),
        "data": normal(ROWS, OUT),
        "noise": normal(ROWS, OUT),
        "time": torch.rand(ROWS, generator=generator),
    }
    weight, bias = normal(OUT, WIDTH), normal(OUT)
    cases = []
    for name, loss in LOSSES.items():
        w, c = weight.clone().requires_grad_(), bias.clone().requires_grad_()
        value = loss(F.linear(batch["input"], w, c), batch)
        value.backward()
        cases.append({"name": name, "loss": value.item(), "weight": w.grad.flatten().tolist(), "bias": c.grad.tolist()})
    fixture.write_json(
        fixture.ROOT / "losses.json",
        {
            "versions": fixture.versions(),
            "batch": {k: v.flatten().tolist() for k, v in batch.items()},
            "weight": weight.flatten().tolist(),
            "bias": bias.tolist(),
            "cases": cases,
        },
    )
    print(f"{len(cases)} losses")


if __name__ == "__main__":
    main()
