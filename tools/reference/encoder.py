"""torch.nn.TransformerEncoder, in all four kinds of layer, with and without masks.

Run with `python -m tools.reference.encoder` from the root of the repository.

config.json uses the words of PyTorch's constructor. The tensors carry the names
of the module's state_dict. Every folder has the outputs under all four masks;
gradients and training are recorded under one of them, named in expect.json.
"""

import warnings

import torch
import torch.nn.functional as F

from . import fixture, training
from .models import randomize

BATCH, SEQUENCE = 2, 13
PADDED = 4  # positions at the end of the second row that are padding

# norm_first, activation, a norm after the last layer, and the mask under which it trains.
CASES = {
    "encoder-post-relu": (False, "relu", False, "none"),
    "encoder-post-gelu": (False, "gelu", False, "src_mask"),
    "encoder-pre-relu": (True, "relu", True, "src_key_padding_mask"),
    "encoder-pre-gelu": (True, "gelu", True, "both"),
}


def build(config):
    layer = torch.nn.TransformerEncoderLayer(
        config["d_model"],
        config["nhead"],
        dim_feedforward=config["dim_feedforward"],
        dropout=config["dropout"],
        activation=config["activation"],
        layer_norm_eps=config["layer_norm_eps"],
        batch_first=config["batch_first"],
        norm_first=config["norm_first"],
    )
    norm = torch.nn.LayerNorm(config["d_model"], eps=config["layer_norm_eps"]) if config["final_norm"] else None
    return torch.nn.TransformerEncoder(layer, config["num_layers"], norm=norm, enable_nested_tensor=False)


def masks():
    """A float mask added to the scores (causal, and weaker the further back), and a
    bool mask in which True hides a key. A padded query still gets an output."""
    position = torch.arange(SEQUENCE)
    distance = position[:, None] - position[None, :]
    src_mask = (-0.15 * distance.float()).masked_fill(distance < 0, float("-inf"))
    padding = torch.zeros(BATCH, SEQUENCE, dtype=torch.bool)
    padding[1, -PADDED:] = True
    return src_mask, padding


def mask_arguments():
    src_mask, padding = masks()
    return {
        "none": {},
        "src_mask": {"mask": src_mask},
        "src_key_padding_mask": {"src_key_padding_mask": padding},
        "both": {"mask": src_mask, "src_key_padding_mask": padding},
    }


def make(name):
    norm_first, activation, final_norm, trained_mask = CASES[name]
    config = {
        "architectures": ["TransformerEncoder"],
        "model_type": "transformer_encoder",
        "d_model": 32,
        "nhead": 4,
        "num_layers": 2,
        "dim_feedforward": 56,
        "dropout": 0.0,
        "activation": activation,
        "layer_norm_eps": 1e-5,
        "norm_first": norm_first,
        "final_norm": final_norm,
        "batch_first": True,
    }
    path, generator = fixture.folder(name), fixture.stream(name)
    fixture.write_json(path / "config.json", config)
    model = build(config).train()
    randomize(model, generator)
    fixture.write_tensors(path / "model.safetensors", model.state_dict())

    shape = BATCH, SEQUENCE, config["d_model"]
    src = torch.randn(shape, generator=generator)
    target = torch.randn(shape, generator=generator)
    arguments = mask_arguments()

    def loss_of(m):
        return F.mse_loss(m(src, **arguments[trained_mask]), target)

    loss, grads = training.gradients(model, loss_of)
    src_mask, padding = masks()
    with torch.no_grad():
        outputs = {"output." + mask: model(src, **kinds) for mask, kinds in arguments.items()}
    fixture.write_tensors(
        path / "expect.safetensors",
        {
            "src": src,
            "target": target,
            "src_mask": src_mask,
            "src_key_padding_mask": padding,
            **outputs,
            **{"grad." + n: g for n, g in grads.items()},
        },
    )
    fixture.write_json(
        path / "expect.json",
        {
            "versions": fixture.versions(),
            "mask": trained_mask,
            "loss": loss,
            "losses": {n.removeprefix("output."): F.mse_loss(o, target).item() for n, o in outputs.items()},
            "adamw": training.plain(model, loss_of),
            "adamw_clipped_cosine": training.clipped_cosine(model, loss_of),
        },
    )
    return loss


def main():
    # PyTorch warns about a float mask together with a bool one, but documents what they mean.
    warnings.filterwarnings("ignore", message="Support for mismatched")
    fixture.repeatable()
    for name in CASES:
        print(f"{name:20} loss {make(name):.6f}")


if __name__ == "__main__":
    main()
