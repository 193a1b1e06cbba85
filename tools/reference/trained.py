"""Networks whose training is more than a loss: a codebook of running means, a target encoder that is the moving average of another, a penalty on gradients, a norm that is called twice.

Run with `python -m tools.reference.trained` from the root of the repository. Files are as those of networks.py, with the tensors of the batch as
`batch.<name>` and no evaluated loss.
"""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import fixture


class Codebook(nn.Module):
    """A vector-quantized autoencoder. The codebook is the mean of what came to each code, over the batches so far."""

    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(6, 8), nn.Linear(8, 6)
        self.register_buffer("codebook", torch.randn(7, 8) * 0.5)
        self.register_buffer("size", torch.ones(7))
        self.register_buffer("sum", self.codebook.clone())

    def forward(self, x):
        z = self.enc(x)
        ids = torch.cdist(z, self.codebook).argmin(-1)
        q = self.codebook[ids]
        with torch.no_grad():
            hot = F.one_hot(ids, 7).to(z)
            self.size.lerp_(hot.sum(0), 0.1)
            self.sum.lerp_(hot.T @ z, 0.1)
            self.codebook.copy_(self.sum / ((self.size + 1e-5) / (self.size.sum() + 7e-5) * self.size.sum())[:, None])
        return F.mse_loss(self.dec(z + (q - z).detach()), x) + 0.25 * F.mse_loss(z, q.detach())


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        return self.layers(x)


class Twins(nn.Module):
    """BYOL: a prediction of what a target encoder says, the moving average of the trained one. Each encoder is called twice."""

    def __init__(self):
        super().__init__()
        self.online = Encoder()
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.predict = nn.Linear(8, 8)

    def forward(self, x, y):
        loss = 0
        for u, v in ((x, y), (y, x)):
            p = F.normalize(self.predict(self.online(u)), dim=-1)
            with torch.no_grad():
                z = F.normalize(self.target(v), dim=-1)
            loss = loss + (2 - 2 * (p * z).sum(-1)).mean()
        return loss

    def before(self):
        with torch.no_grad():
            for q, k in zip(self.online.parameters(), self.target.parameters()):
                k.lerp_(q, 0.1)


class Critic(nn.Module):
    """The critic of a WGAN, whose gradient is to have length 1 between what is real and what is not."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 3, 2, 1), nn.Conv2d(6, 8, 3, 2, 1)
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(32), nn.Linear(32, 12), nn.Linear(12, 1)

    def score(self, x):
        x = F.silu(self.conv2(F.leaky_relu(self.conv1(x), 0.2))).permute(0, 2, 3, 1).flatten(1)
        return self.fc2(torch.tanh(self.fc1(self.norm(x))))

    def forward(self, real, fake, share):
        share = share[:, None, None, None]
        between = (share * real + (1 - share) * fake).requires_grad_()
        slope = torch.autograd.grad(self.score(between).sum(), between, create_graph=True)[0]
        return (self.score(fake) - self.score(real)).mean() + 10 * (slope.flatten(1).norm(dim=1) - 1).square().mean()


def train(name, net, batch, lr=0.05):
    tensors = {"batch." + k: v for k, v in batch.items()}
    tensors.update({"start." + k: v.clone() for k, v in net.state_dict().items() if v.is_floating_point()})
    net.double().train()
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=lr, momentum=0.9)
    losses = []
    for _ in range(10):
        getattr(net, "before", lambda: None)()
        optimizer.zero_grad()
        loss = net(*(v.double() for v in batch.values()))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tensors.update({"end." + k: v for k, v in net.state_dict().items() if v.is_floating_point()})
    tensors["losses"] = torch.tensor(losses)
    fixture.write_tensors(fixture.folder("networks") / f"{name}.safetensors", tensors)


def main():
    fixture.repeatable()
    torch.manual_seed(2)
    random = fixture.stream("trained")
    x = torch.randn(16, 6, generator=random)
    train("codebook", Codebook(), {"x": x})
    train("twins", Twins(), {"x": x, "y": x + 0.1 * torch.randn(16, 6, generator=random)})
    images = torch.randn(2, 8, 1, 8, 8, generator=random)
    train("critic", Critic(), {"real": images[0].clone(), "fake": images[1].clone(), "share": torch.rand(8, generator=random)}, lr=0.005)
    print("3 networks")


if __name__ == "__main__":
    main()
