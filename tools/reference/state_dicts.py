"""Files of a small PyTorch model that shares a weight, as users save them, with its outputs.

Run with `python -m tools.reference.state_dicts` from the root of the repository. `both.safetensors` and `both.pt` have the
shared weight under the name of each layer, as state_dict gives it, and the counter of a batch norm; `one.safetensors` has it
under one name, which safetensors' save_model chooses.
"""

import torch
import torch.nn as nn
from safetensors.torch import save_file, save_model

from . import fixture


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(6, 4)
        self.norm = nn.BatchNorm1d(4)
        self.score = nn.Linear(4, 6, bias=False)
        self.score.weight = self.items.weight

    def forward(self, x):
        return self.score(self.norm(self.items(x)))


def main():
    fixture.repeatable()
    torch.manual_seed(3)
    net = Scores()
    net(torch.tensor([1, 2, 5, 0]))  # moves the running statistics
    net.eval()
    ids = torch.tensor([4, 0, 3])
    folder = fixture.folder("state_dicts")
    save_file({name: t.clone() for name, t in net.state_dict().items()}, folder / "both.safetensors")
    torch.save(net.state_dict(), folder / "both.pt")
    save_model(net, str(folder / "one.safetensors"))
    fixture.write_json(folder / "outputs.json", {"ids": ids.tolist(), "outputs": net(ids).flatten().tolist()})


if __name__ == "__main__":
    main()
