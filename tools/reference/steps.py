"""How many steps transformers' Trainer takes for a number of epochs, how many of them are warm-up, and their learning rates."""

import tempfile
import warnings

import torch
from transformers import Trainer, TrainingArguments, get_scheduler

from . import fixture

RATE = 0.1
# samples, batch size, epochs, warm-up as warmup_steps has it: below 1 a share of the steps
CASES = [
    (40, 4, 1.1, 0.03), (40, 4, 0.5, 0.1), (40, 4, 2.5, 0.03), (12, 4, 1.1, 0), (40, 4, 2.3, 0.25), (28, 4, 0.3, 0.5),
    (17, 8, 0.75, 0.4), (9, 2, 0.5, 0), (9, 8, 0.5, 0), (40, 4, 3, 5), (100, 1, 0.07, 0.3), (100, 1, 1.29, 0.07), (8, 8, 0.01, 0),
]


def case(folder, samples, batch, epochs, warmup):
    args = TrainingArguments(folder, per_device_train_batch_size=batch, num_train_epochs=epochs, warmup_steps=warmup, use_cpu=True, report_to=[])
    trainer = Trainer(torch.nn.Linear(1, 1), args, train_dataset=[{"x": i} for i in range(samples)])
    steps = trainer.set_initial_training_values(args, trainer.get_train_dataloader())[-1]
    warm = args.get_warmup_steps(steps)
    rates = {}
    for name in ("constant_with_warmup", "linear", "cosine"):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
        scheduler = get_scheduler(name, optimizer, num_warmup_steps=warm, num_training_steps=steps)
        rates[name] = []
        for _ in range(steps):
            rates[name].append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    return {"samples": samples, "batch": batch, "epochs": epochs, "warmup": warmup, "steps": steps, "warmup_steps": warm, "rates": rates}


def main():
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        cases = [case(folder, *c) for c in CASES]
    fixture.write_json(fixture.ROOT / "steps.json", {"versions": fixture.versions(), "rate": RATE, "cases": cases})
    print(f"{len(cases)} numbers of steps")


if __name__ == "__main__":
    main()
