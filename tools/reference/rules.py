"""Optimizers that PyTorch does not have, or has for matrices only: a few numbers of each, as JSON.

Run with `python -m tools.reference.rules` from the root of the repository. AdEMAMix is bitsandbytes' own
reference, schedule-free AdamW the package `schedulefree`, Muon PyTorch's; LAMB, LARS and Adam with a
bounded step are the formulas of their papers and of bitsandbytes, written down here in float64.
"""

import schedulefree
import torch
from bitsandbytes.optim.ademamix import _ReferenceAdEMAMix

from . import fixture

STEPS, SHAPE = 6, [5, 8]


class Written(torch.optim.Optimizer):
    """An optimizer whose step on one param is a function of its state."""

    def __init__(self, params, rule, **options):
        super().__init__(params, options)
        self.rule = rule

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p.copy_(self.rule(p.double(), p.grad.double(), state, group))


def mean(state, name, beta, x):
    state[name] = beta * state.get(name, torch.zeros_like(x)) + (1 - beta) * x
    return state[name]


def adam(g, state, o):
    t = state["step"]
    m, v = mean(state, "exp_avg", o["beta1"], g), mean(state, "exp_avg_sq", o["beta2"], g * g)
    return m / (1 - o["beta1"] ** t) / ((v / (1 - o["beta2"] ** t)).sqrt() + o["eps"])


def lamb(p, g, state, o):
    u = adam(g, state, o) + o["weight_decay"] * p
    return p - o["lr"] * p.norm() / u.norm() * u


def lars(p, g, state, o):
    d = g + o["weight_decay"] * p
    buffer = state.get("momentum_buffer", torch.zeros_like(p)) * o["momentum"] + o["trust"] * p.norm() / d.norm() * d
    state["momentum_buffer"] = buffer
    return p - o["lr"] * buffer


def bounded(p, g, state, o):
    u = adam(g, state, o)
    most = o["max_unorm"] * p.norm() + o["eps"]
    by = min(1.0, (most / u.norm()).item())
    return p * (1 - o["lr"] * o["weight_decay"]) - o["lr"] * by * u


def skipping(p, g, state, o):
    """Elements without a gradient stay, and so do their means."""
    before = {k: state[k].clone() for k in ("exp_avg", "exp_avg_sq") if k in state}
    new = p * (1 - o["lr"] * o["weight_decay"]) - o["lr"] * adam(g, state, o)
    for k in ("exp_avg", "exp_avg_sq"):
        state[k] = torch.where(g == 0, before.get(k, torch.zeros_like(g)), state[k])
    return torch.where(g == 0, p, new)


ADAM = {"lr": 0.02, "beta1": 0.9, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.1}
MIX = {"lr": 0.02, "betas": (0.8, 0.95, 0.99), "alpha": 4.0, "eps": 1e-6, "weight_decay": 0.1}

# How it is made, and the same in Spillway's words.
RULES = {
    "ademamix": (lambda p: _ReferenceAdEMAMix([p], **MIX), "ademamix:lr=0.02,beta1=0.8,beta2=0.95,beta3=0.99,alpha=4,eps=1e-6,weight_decay=0.1"),
    "ademamix-warm": (
        lambda p: _ReferenceAdEMAMix([p], t_alpha=4, t_beta3=5, **MIX),
        "ademamix:lr=0.02,beta1=0.8,beta2=0.95,beta3=0.99,alpha=4,eps=1e-6,weight_decay=0.1,t_alpha=4,t_beta3=5",
    ),
    "lamb": (lambda p: Written([p], lamb, **ADAM), "lamb:lr=0.02,beta1=0.9,beta2=0.95,eps=1e-6,weight_decay=0.1"),
    "lars": (lambda p: Written([p], lars, lr=0.5, momentum=0.9, trust=0.01, weight_decay=0.1), "lars:lr=0.5,momentum=0.9,trust=0.01,weight_decay=0.1"),
    "bounded": (lambda p: Written([p], bounded, max_unorm=0.1, **ADAM), "adamw:lr=0.02,beta1=0.9,beta2=0.95,eps=1e-6,weight_decay=0.1,max_unorm=0.1"),
    "skipping": (lambda p: Written([p], skipping, **ADAM), "adamw:lr=0.02,beta1=0.9,beta2=0.95,eps=1e-6,weight_decay=0.1,skip_zeros"),
    "schedule-free": (
        lambda p: schedulefree.AdamWScheduleFree([p], lr=0.02, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, foreach=False),
        "schedule_free_adamw:lr=0.02,beta1=0.9,beta2=0.95,eps=1e-6,weight_decay=0.1",
    ),
    "schedule-free-warm": (
        lambda p: schedulefree.AdamWScheduleFree([p], lr=0.02, betas=(0.8, 0.95), eps=1e-6, warmup_steps=3, foreach=False),
        "schedule_free_adamw:lr=0.02,beta1=0.8,beta2=0.95,eps=1e-6,warmup_steps=3",
    ),
    "muon": (lambda p: torch.optim.Muon([p], lr=0.02, weight_decay=0.1, momentum=0.9), "muon:lr=0.02,weight_decay=0.1,momentum=0.9"),
    "muon-plain": (
        lambda p: torch.optim.Muon([p], lr=0.02, weight_decay=0.0, momentum=0.8, nesterov=False, adjust_lr_fn="match_rms_adamw"),
        "muon:lr=0.02,weight_decay=0,momentum=0.8,nesterov=false,match_rms_adamw",
    ),
}


def case(name, shape):
    make, described = RULES[name]
    generator = fixture.stream(f"rule {name} {shape}")
    p = torch.nn.Parameter(torch.randn(shape, generator=generator))
    gradients = torch.randn([STEPS] + shape, generator=generator)
    gradients[1:4, 0, 3] = 0
    optimizer = make(p)
    initial, values = p.detach().flatten().tolist(), []
    free = "schedule" in name
    if free:
        optimizer.train()
    for gradient in gradients:
        p.grad = gradient.clone()
        optimizer.step()
        values.append(p.detach().flatten().tolist())
    scored = []
    if free:
        optimizer.eval()
        scored = p.detach().flatten().tolist()
    return {
        "name": name,
        "optimizer": described,
        "shape": shape,
        "initial": initial,
        "gradients": gradients.flatten(1).tolist(),
        "values": values,
        "scored": scored,
    }


def main():
    fixture.repeatable()
    cases = [case(name, SHAPE) for name in RULES] + [case("muon", [9, 4])]
    fixture.write_json(fixture.ROOT / "rules.json", {"versions": fixture.versions(), "cases": cases})


if __name__ == "__main__":
    main()
