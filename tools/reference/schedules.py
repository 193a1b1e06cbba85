"""The learning rates of transformers' schedules by their names, with what lr_scheduler_kwargs may hold."""

import torch
from transformers import get_scheduler

from . import fixture

RATE = 0.02
# name, lr_scheduler_kwargs, steps of the warm-up, steps in all
CASES = [
    ("constant_with_warmup", {}, 3, 12),
    ("linear", {}, 3, 14),
    ("linear", {}, 0, 1),
    ("cosine", {"num_cycles": 1.25}, 3, 17),
    ("cosine_with_restarts", {}, 3, 15),
    ("cosine_with_restarts", {"num_cycles": 3}, 2, 20),
    ("cosine_with_min_lr", {"min_lr": 0.003}, 3, 15),
    ("cosine_with_min_lr", {"min_lr_rate": 0.1, "num_cycles": 1}, 0, 15),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1}, 4, 15),
    ("cosine_warmup_with_min_lr", {"min_lr": 0.001, "warmup_lr_rate": 0.2}, 4, 15),
    ("polynomial", {}, 3, 15),
    ("polynomial", {"lr_end": 0.002, "power": 2.5}, 3, 15),
    ("inverse_sqrt", {}, 4, 20),
    ("inverse_sqrt", {}, 0, 6),
    ("inverse_sqrt", {"timescale": 7}, 4, 20),
    ("warmup_stable_decay", {"num_decay_steps": 5}, 4, 16),
    ("warmup_stable_decay", {"num_decay_steps": 5, "min_lr_ratio": 0.1, "decay_type": "linear", "warmup_type": "cosine"}, 4, 16),
    ("warmup_stable_decay", {"num_decay_steps": 6, "num_stable_steps": 3, "decay_type": "1-sqrt", "warmup_type": "1-sqrt"}, 4, 16),
    ("warmup_stable_decay", {"num_decay_steps": 5, "num_cycles": 1.5}, 0, 12),
]


def case(name, options, warmup, steps):
    """rates[i] is the learning rate of step i, counted from 0."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps, scheduler_specific_kwargs=dict(options))
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return {"name": name, "options": options, "warmup": warmup, "steps": steps, "rates": rates}


def main():
    fixture.write_json(fixture.ROOT / "schedules.json", {"versions": fixture.versions(), "rate": RATE, "cases": [case(*c) for c in CASES]})


if __name__ == "__main__":
    main()
