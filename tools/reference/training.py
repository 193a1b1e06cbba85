"""Ten optimizer iterations on one fixed batch, in two settings.

losses[i] is the loss *before* the update of iteration i, so losses[0] is the
loss of the untouched weights; final_loss is the loss after the tenth update.
"""

import copy

import torch
from transformers import get_cosine_schedule_with_warmup

ITERATIONS = 10
ADAMW = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}
CLIP = 1.0
WARMUP = 3


def gradients(model, loss_of):
    """The loss and the gradient of every distinct parameter, by name."""
    model.zero_grad(set_to_none=True)
    loss = loss_of(model)
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters()}


def weight_norm(model):
    """The Euclidean norm of all distinct parameters together, summed in float64."""
    return sum(p.detach().double().square().sum() for p in model.parameters()).sqrt().item()


def plain(model, loss_of):
    """Constant learning rate, no clipping, weight decay on every parameter."""
    return _run(model, loss_of, schedule=None, clip=None)


def clipped_cosine(model, loss_of):
    """Gradients clipped to a global norm of 1; the learning rate rises for three iterations
    (0, 1/3, 2/3 of lr) and then falls along half a cosine."""

    def schedule(optimizer):
        return get_cosine_schedule_with_warmup(optimizer, WARMUP, ITERATIONS)

    return _run(model, loss_of, schedule, CLIP)


def _run(model, loss_of, schedule, clip):
    model = copy.deepcopy(model)
    options = {**ADAMW, "betas": tuple(ADAMW["betas"])}
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False, fused=False, **options)
    scheduler = schedule(optimizer) if schedule else None
    losses, rates, norms = [], [], []
    for _ in range(ITERATIONS):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model)
        loss.backward()
        limit = clip if clip is not None else float("inf")
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit, foreach=False).item())
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(loss.item())
    return {
        "options": {**ADAMW, "clip": clip, "warmup": WARMUP if schedule else 0},
        "losses": losses,
        "rates": rates,
        "gradient_norms": norms,
        "final_loss": loss_of(model).item(),
        "final_weight_norm": weight_norm(model),
    }
