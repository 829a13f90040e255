"""Small networks with random weights, for tests that ask what is true of any network."""

import torch

from paircaps.model_files import save_model
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.pictures import Fitting

DIGITS = tuple("0123456789")
STACKED = {"blocks": (1, 1, 1), "hidden_capsules": (6, 5)}


def small_network(
    routing="fm",
    model="resnet-caps-small",
    *,
    size=28,
    crop=None,
    channels=1,
    decoder="deconv",
    labels=1,
    classes=DIGITS,
    **options,
):
    torch.manual_seed(0)
    sides = (size, size) if isinstance(size, int) else size
    seen = sides if crop is None else (crop, crop)
    arguments = {
        "num_classes": len(classes),
        "image_size": seen,
        "in_channels": channels,
        "routing": routing,
        **options,
    }
    fitting = Fitting(invert="light" if channels == 1 else "never")
    preparation = Preparation(sides, seen, channels=channels, fitting=fitting)
    network = Network(NetworkSpec(model, arguments, classes, preparation, decoder, labels)).eval()
    if network.decoder is not None:
        lively(network.decoder)
    return network


def lively(decoder):
    """Drawings of a fresh decoder are all grey; larger weights make each pose look different."""
    with torch.no_grad():
        for parameter in decoder.parameters():
            if parameter.dim() > 1:
                parameter *= 4


def stacked_network(routing="fm", **options):
    return small_network(routing, "resnet-caps", **STACKED, **options)


def saved(folder, network, **trained):
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, network, trained)
    return folder


def some_images(count=3, size=28, channels=1):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, channels, size, size), generator=generator, dtype=torch.uint8)
