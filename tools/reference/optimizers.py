"""Optimizers and learning-rate schedules, a few numbers of each, as JSON.

Run with `python -m tools.reference.optimizers` from the root of the repository.
"""

import torch
import torch.optim.lr_scheduler as torch_lr
import transformers.optimization as hf

from . import fixture

STEPS, VALUES = 5, 10
ITERATIONS = 20
RATE = 0.1

OPTIMIZERS = {
    "adam": (torch.optim.Adam, {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}),
    "adam-decay": (torch.optim.Adam, {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}),
    "adamw-decay": (torch.optim.AdamW, {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0}),
    "rmsprop-decay": (torch.optim.RMSprop, {"lr": 0.02, "alpha": 0.9, "eps": 1e-6, "weight_decay": 0.1}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.01, "lr_decay": 0.0, "eps": 1e-10, "weight_decay": 0.0}),
    "adagrad-decay": (torch.optim.Adagrad, {"lr": 0.05, "lr_decay": 0.1, "eps": 1e-6, "weight_decay": 0.1}),
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd-decay": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.2}),
    "sgd-momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "sgd-dampening": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "sgd-nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd-all": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.8, "dampening": 0.5, "weight_decay": 0.2}),
}


def optimizer_case(name):
    """values[i] are the parameters after step i; the gradients are given, not computed.
    One value never has a gradient: only weight decay changes it."""
    kind, options = OPTIMIZERS[name]
    generator = fixture.stream("optimizer " + name)
    p = torch.nn.Parameter(torch.randn(VALUES, generator=generator))
    gradients = torch.randn(STEPS, VALUES, generator=generator)
    gradients[:, 3] = 0
    arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    fused = {} if kind is torch.optim.RMSprop else {"fused": False}
    optimizer = kind([p], foreach=False, **fused, **arguments)
    initial, values = p.detach().tolist(), []
    for gradient in gradients:
        p.grad = gradient.clone()
        optimizer.step()
        values.append(p.detach().tolist())
    state = {k: v.tolist() for k, v in optimizer.state[p].items() if torch.is_tensor(v)}
    return {
        "name": name,
        "options": options,
        "initial": initial,
        "gradients": gradients.tolist(),
        "values": values,
        "final_state": state,
    }


# The class, its options, and the same options in Spillway's words. With a relative step
# size, PyTorch's lr is the largest step; transformers has 0.01 there.
ADAFACTORS = {
    "torch": (torch.optim.Adafactor, {"lr": 0.01}, "adafactor:lr=0.01,relative_step,scale_parameter"),
    "relative": (hf.Adafactor, {}, "adafactor:lr=0.01,relative_step,scale_parameter"),
    "warmup": (hf.Adafactor, {"warmup_init": True}, "adafactor:lr=0.01,relative_step,scale_parameter,warmup_init"),
    "fixed": (
        hf.Adafactor,
        {"lr": 0.02, "relative_step": False, "scale_parameter": False, "clip_threshold": 0.5, "decay_rate": -0.6},
        "adafactor:lr=0.02,clip_threshold=0.5,decay_rate=-0.6",
    ),
    "mean": (
        hf.Adafactor,
        {"lr": 0.02, "relative_step": False, "scale_parameter": True, "beta1": 0.9, "weight_decay": 0.1},
        "adafactor:lr=0.02,beta1=0.9,weight_decay=0.1,scale_parameter",
    ),
}
SHAPES = [[7], [4, 6], [2, 3, 5]]


def adafactor_case(name, shape):
    """As optimizer_case, of a param of a shape, everything flattened."""
    kind, options, described = ADAFACTORS[name]
    generator = fixture.stream(f"adafactor {name} {shape}")
    p = torch.nn.Parameter(torch.randn(shape, generator=generator))
    gradients = torch.randn([STEPS] + shape, generator=generator)
    optimizer = kind([p], **options)
    initial, values = p.detach().flatten().tolist(), []
    for gradient in gradients:
        p.grad = gradient.clone()
        optimizer.step()
        values.append(p.detach().flatten().tolist())
    state = {k: v.flatten().tolist() for k, v in optimizer.state[p].items() if torch.is_tensor(v) and v.dim() > 0}
    return {
        "name": name,
        "optimizer": described,
        "shape": shape,
        "initial": initial,
        "gradients": gradients.flatten(1).tolist(),
        "values": values,
        "final_state": state,
    }


def clip_case(limit):
    """The global norm over two parameters, and their gradients after clipping to limit.
    PyTorch multiplies by limit / (norm + 1e-6), and never by more than 1."""
    generator = fixture.stream("clip")
    gradients = [torch.randn(7, generator=generator), torch.randn(3, 2, generator=generator)]
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for p, g in zip(parameters, gradients):
        p.grad = g.clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit, foreach=False)
    return {
        "limit": limit,
        "gradients": [g.flatten().tolist() for g in gradients],
        "norm": norm.item(),
        "clipped": [p.grad.flatten().tolist() for p in parameters],
    }


# The scheduler's function and its options: of transformers for the first five, of PyTorch for the others.
SCHEDULES = {
    "constant": (hf.get_constant_schedule, {}),
    "constant-warmup": (hf.get_constant_schedule_with_warmup, {"num_warmup_steps": 5}),
    "linear": (hf.get_linear_schedule_with_warmup, {"num_warmup_steps": 5, "num_training_steps": 18}),
    "cosine": (hf.get_cosine_schedule_with_warmup, {"num_warmup_steps": 4, "num_training_steps": 18}),
    "cosine-floor": (
        hf.get_cosine_with_min_lr_schedule_with_warmup,
        {"num_warmup_steps": 4, "num_training_steps": 18, "min_lr": 0.01},
    ),
    "torch-warmup": (torch_lr.LinearLR, {"start_factor": 0.25, "end_factor": 1.0, "total_iters": 6}),
    "torch-cosine": (torch_lr.CosineAnnealingLR, {"T_max": 16, "eta_min": 0.01}),
    "step": (torch_lr.StepLR, {"step_size": 6, "gamma": 0.3}),
}


def schedule_case(name):
    """rates[i] is the learning rate that iteration i uses, counted from 0. Some
    schedules end before the last iteration: what follows is part of the fixture."""
    maker, options = SCHEDULES[name]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = maker(optimizer, **options)
    rates = []
    for _ in range(ITERATIONS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return {"name": name, "maker": maker.__name__, "rate": RATE, "options": options, "rates": rates}


def loss_scale_case(interval=3):
    """scale[i] is GradScaler's scale after iteration i; overflow[i] says whether the
    gradients of that iteration were infinite."""
    scaler = torch.amp.GradScaler("cpu", growth_interval=interval)
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([p], lr=0.0)
    overflow = [i in (0, 1, 6, 11, 12, 13) for i in range(24)]
    scales = []
    for bad in overflow:
        scaler.scale(p.sum()).backward()
        if bad:
            p.grad[1] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    return {"interval": interval, "overflow": overflow, "scale": scales}


def main():
    fixture.repeatable()
    fixture.folder(".")
    fixture.write_json(
        fixture.ROOT / "optimizers.json",
        {
            "versions": fixture.versions(),
            "optimizers": [optimizer_case(name) for name in OPTIMIZERS],
            "adafactors": [adafactor_case(name, shape) for name in ADAFACTORS for shape in SHAPES],
            "clipping": [clip_case(limit) for limit in (1.0, 100.0)],
            "schedules": [schedule_case(name) for name in SCHEDULES],
            "loss_scale": loss_scale_case(),
        },
    )
    print(f"{len(OPTIMIZERS)} optimizers, {len(SCHEDULES)} schedules")


if __name__ == "__main__":
    main()
