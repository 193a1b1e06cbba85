"""Small networks for images and tokens, trained for ten iterations.

Run with `python -m tools.reference.networks` from the root of the repository. Each has a file with its
weights as they start (`start.<name>`), what they are after ten iterations of SGD (`end.<name>`), its batch,
the losses, and a loss that was evaluated afterwards. All is computed in float64 and stored in float32.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers.models.t5.modeling_t5 import T5Attention

from . import fixture


class Basic(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if stride > 1 else None

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layers = nn.ModuleList([Basic(8, 8, 1) for _ in range(5)] + [Basic(8, 16, 2)])
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for layer in self.layers:
            x = layer(x)
        return self.fc(x.mean((2, 3)))


class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 7, 1, 3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pwconv1 = nn.Linear(width, 4 * width)
        self.pwconv2 = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 0.3))

    def forward(self, x):
        y = self.norm(self.dwconv(x.movedim(-1, 1)).movedim(1, -1))
        return x + self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 4, 4)
        self.norm = nn.LayerNorm(12, eps=1e-6)
        self.blocks = nn.ModuleList([ConvNeXtBlock(12) for _ in range(5)])
        self.down_norm = nn.LayerNorm(12, eps=1e-6)
        self.down = nn.Conv2d(12, 16, 2, 2)
        self.block = ConvNeXtBlock(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.norm(self.stem(x).movedim(1, -1))
        for b in self.blocks:
            x = b(x)
        x = self.down(self.down_norm(x).movedim(-1, 1)).movedim(1, -1)
        return self.head(self.block(x).mean((1, 2)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1, self.norm1 = nn.Conv2d(2, 8, 3, 1, 1), nn.GroupNorm(2, 8)
        self.enc2, self.norm2 = nn.Conv2d(8, 16, 3, 1, 1), nn.GroupNorm(4, 16)
        self.mid = nn.ModuleList([nn.Conv2d(16, 16, 3, 1, 1) for _ in range(12)])
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.dec, self.norm3 = nn.Conv2d(16, 8, 3, 1, 1), nn.GroupNorm(2, 8)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        skip = F.silu(self.norm1(self.enc1(x)))
        x = F.silu(self.norm2(self.enc2(F.max_pool2d(skip, 2))))
        for mid in self.mid:
            x = x + F.interpolate(F.avg_pool2d(F.leaky_relu(mid(x)), 2), scale_factor=2, mode="bilinear")
        x = F.silu(self.norm3(self.dec(torch.cat((self.up(x), skip), 1))))
        return self.out(x).movedim(1, -1)


class Average(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(23, 12)
        self.hidden = nn.ModuleList([nn.Linear(12, 12) for _ in range(8)])
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.embed(x).mean(1)
        for hidden in self.hidden:
            x = torch.tanh(hidden(x))
        return self.head(x)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(23, 10)
        self.lstm = nn.LSTM(10, 12, num_layers=2, batch_first=True, bidirectional=True)
        self.more = nn.ModuleList([nn.LSTM(24, 12, batch_first=True, bidirectional=True) for _ in range(8)])
        self.gru = nn.GRU(24, 8, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.lstm(self.embed(x))[0]
        for lstm in self.more:
            x = x + lstm(x)[0]
        return self.head(self.gru(x)[0])


class Volume(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv3 = nn.Conv3d(2, 4, 3, padding=1)
        self.slope = nn.PReLU(4)
        self.conv1 = nn.Conv1d(4, 6, 3, padding=1)
        self.rnn = nn.RNN(6, 8, batch_first=True)
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = nn.Linear(8, 8), nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 8)
        self.hidden = nn.ModuleList([nn.Linear(48, 48) for _ in range(12)])
        self.head = nn.Linear(48, 5)

    def forward(self, x):
        x = F.instance_norm(self.slope(self.conv3(x)))
        x = self.conv1(F.adaptive_max_pool3d(x, (2, 3, 3)).flatten(2))
        other = x.transpose(1, 2)
        x = self.rnn(F.adaptive_avg_pool1d(x, 6).transpose(1, 2))[0]
        heads = lambda y: y.unflatten(-1, (2, 4)).transpose(1, 2)
        y = F.scaled_dot_product_attention(heads(self.q_proj(x)), heads(self.k_proj(other)), heads(self.v_proj(other)))
        x = x + self.out_proj(y.transpose(1, 2).flatten(2))
        x = (F.softmax(x, 1) + 0.1 * F.log_softmax(x, -1)).movedim(-1, 1).flatten(1)
        for hidden in self.hidden:
            x = x + torch.tanh(hidden(x))
        return self.head(x)


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(23, 12)
        self.hidden = nn.ModuleList([nn.Linear(12, 12) for _ in range(8)])
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.bag(x)
        for hidden in self.hidden:
            x = torch.tanh(hidden(x))
        return self.head(x)


class Biased(nn.Module):
    """Attention of two heads with a bias for each distance, as T5 has it, and a slope for each head, as ALiBi has it."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(12, 12) for _ in range(4))
        self.relative_attention_bias = nn.Embedding(8, 2)
        self.slopes = nn.Parameter(torch.tensor([0.5, 0.25]))

    def forward(self, x):
        y = self.norm(x)
        distance = torch.arange(9)[None, :] - torch.arange(9)[:, None]
        bias = self.relative_attention_bias(T5Attention._relative_position_bucket(distance, True, 8, 6)).permute(2, 0, 1)
        bias = bias - self.slopes[:, None, None] * distance.abs()
        heads = lambda y: y.unflatten(-1, (2, 6)).transpose(1, 2)
        y = F.scaled_dot_product_attention(heads(self.q_proj(y)), heads(self.k_proj(y)), heads(self.v_proj(y)), attn_mask=bias)
        return x + self.out_proj(y.transpose(1, 2).flatten(2))


class Relative(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(23, 12)
        self.layers = nn.ModuleList([Biased() for _ in range(6)])
        self.mix = nn.Parameter(torch.randn(9, 9) * 0.3)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        x = x + torch.bmm(F.softmax(torch.bmm(x, x.mT) * 0.3, -1), self.mix @ x)
        return self.head(x.mean(1))


class WaveNet(nn.Module):
    """Dilated causal convolutions with gates. The sum of the last layer is not used, so that its weights get no gradient."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(23, 8)
        self.filter, self.gate = (nn.ModuleList([nn.Conv1d(8, 8, 2, dilation=2 ** (i % 3)) for i in range(8)]) for _ in range(2))
        self.sum, self.skip = nn.ModuleList([nn.Conv1d(8, 8, 1) for _ in range(8)]), nn.ModuleList([nn.Conv1d(8, 12, 1) for _ in range(8)])
        self.head = nn.Conv1d(12, 5, 1)

    def forward(self, x):
        x, skip = self.embed(x).movedim(-1, 1), 0
        for i in range(8):
            y = F.pad(x, (2 ** (i % 3), 0))
            y = torch.tanh(self.filter[i](y)) * torch.sigmoid(self.gate[i](y))
            x, skip = x + self.sum[i](y), skip + self.skip[i](y)
        return self.head(F.relu(skip)).movedim(1, -1)


class Graph(nn.Module):
    """Attention over the edges of a graph of six nodes, and the two nodes that score highest."""

    source, to = torch.tensor([0, 1, 2, 3, 4, 5, 5, 1, 0, 3]), torch.tensor([1, 2, 1, 1, 0, 0, 2, 5, 4, 5])

    def __init__(self):
        super().__init__()
        self.into = nn.Linear(5, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(8)])
        self.scores = nn.ParameterList([torch.randn(16) * 0.3 for _ in range(8)])
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.into(x))
        for layer, score in zip(self.layers, self.scores):
            y = layer(x)
            source, to = y[:, self.source], y[:, self.to]
            weight = torch.exp(F.leaky_relu((torch.cat((source, to), -1) * score).sum(-1), 0.2))
            total = torch.zeros(x.shape[0], 6, dtype=x.dtype).index_add(1, self.to, weight)
            part = (weight / total[:, self.to]).unsqueeze(-1)
            x = x + F.elu(torch.zeros_like(x).index_add(1, self.to, part * source))
        return self.head(x).topk(2, 1)[0].mean(1)


class Translator(nn.Module):
    """Layers of an encoder over the first four words, in which 0 is padding, and of a decoder that looks at them over the others."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(23, 12)
        self.encoder = nn.ModuleList([nn.TransformerEncoderLayer(12, 2, 20, 0.0, "gelu", batch_first=True) for _ in range(3)])
        self.decoder = nn.ModuleList([nn.TransformerDecoderLayer(12, 2, 20, 0.0, "relu", batch_first=True, norm_first=i > 0) for i in range(4)])
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        padding, memory, y = x[:, :4] == 0, self.embed(x[:, :4]), self.embed(x[:, 4:])
        hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
        for layer in self.encoder:
            memory = layer(memory, src_key_padding_mask=padding)
        for layer in self.decoder:
            y = layer(y, memory, tgt_mask=hidden, memory_key_padding_mask=padding)
        return self.head(y)


class Experts(nn.Module):
    """Two of four experts for each word, by a router, with a loss that balances the experts over the batch."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(23, 8)
        self.routers = nn.ModuleList([nn.Linear(8, 4) for _ in range(6)])
        self.up, self.down = (nn.ParameterList([torch.randn(*s) * 0.3 for _ in range(6)]) for s in ((4, 8, 12), (4, 12, 8)))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x, self.extra = self.embed(x), 0
        for router, up, down in zip(self.routers, self.up, self.down):
            p = router(x).softmax(-1)
            top, ids = p.topk(2, -1)
            gates = torch.zeros_like(p).scatter_add(-1, ids, top / top.sum(-1, keepdim=True))
            y = torch.einsum("beth,ehd->betd", F.gelu(torch.einsum("btd,edh->beth", x, up)), down)
            share = F.one_hot(ids, 4).to(p).sum(2).mean((0, 1))
            self.extra = self.extra + 0.1 * 4 * (share * p.mean((0, 1))).sum()
            x = x + torch.einsum("bte,betd->btd", gates, y)
        return self.head(x)


def train(name, net, x, target):
    torch.manual_seed(0)
    generator = fixture.stream("network " + name)
    for p in net.parameters():
        with torch.no_grad():
            p.add_(0.02 * torch.randn(p.shape, generator=generator))
    tensors = {"start." + k: v.clone() for k, v in net.state_dict().items() if v.is_floating_point()}
    net.double().train()
    wide = x.double() if x.is_floating_point() else x
    loss = lambda y: F.mse_loss(y, target.double()) if target.is_floating_point() else F.cross_entropy(y.flatten(0, -2), target.flatten()) + getattr(net, "extra", 0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        value = loss(net(wide))
        value.backward()
        optimizer.step()
        losses.append(value.item())
    net.eval()
    with torch.no_grad():
        losses.append(loss(net(wide)).item())
    tensors.update({"end." + k: v for k, v in net.state_dict().items() if v.is_floating_point()})
    tensors.update({"input": x, "target": target, "losses": torch.tensor(losses)})
    fixture.write_tensors(fixture.folder("networks") / f"{name}.safetensors", tensors)


def main():
    fixture.repeatable()
    torch.manual_seed(1)
    images = torch.randn(6, 3, 16, 16, generator=fixture.stream("networks images"))
    classes = torch.tensor([0, 1, 2, 3, 4, 1])
    words = torch.randint(0, 23, (6, 9), generator=fixture.stream("networks words"))
    train("resnet", ResNet(), images, classes)
    train("convnext", ConvNeXt(), images, classes)
    pairs = torch.randn(4, 2, 12, 12, generator=fixture.stream("networks pairs"))
    train("unet", UNet(), pairs, (pairs.movedim(1, -1) ** 2).roll(1, 1).contiguous())
    train("average", Average(), words, classes)
    train("tagger", Tagger(), words, words % 5)
    train("volume", Volume(), torch.randn(6, 2, 4, 6, 6, generator=fixture.stream("networks volumes")), classes)
    train("bags", Bags(), words, classes)
    train("relative", Relative(), words, classes)
    train("wavenet", WaveNet(), words, words % 5)
    train("graph", Graph(), torch.randn(6, 6, 5, generator=fixture.stream("networks graphs")), classes)
    padded = words.clone()
    padded[:, 0], padded[1, 2:4], padded[4, 3] = 1, 0, 0
    train("translator", Translator(), padded, words[:, 4:] % 5)
    train("experts", Experts(), words, words % 5)
    print("12 networks")


if __name__ == "__main__":
    main()
