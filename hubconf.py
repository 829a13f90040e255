"""Networks of paircaps for ``torch.hub``: ``torch.hub.load(REPOSITORY, "digits")``, or with another of the names below.

Each name is a trained network that comes with the project, ready to predict; ``create_model`` builds any model, with
fresh weights or, with ``pretrained="digits"``, with trained ones.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

dependencies = ["torch", "numpy", "safetensors"]

_HERE = Path(__file__).resolve().parent
if find_spec("paircaps") is None:  # not installed: the source of this copy of the repository
    sys.path.insert(0, str(_HERE / "src"))

from paircaps import create_model as create_model  # noqa: E402
from paircaps import load as _load  # noqa: E402


def _loader(name):
    def load(device="cpu"):
        larger = _HERE / "weights" / name
        return _load(larger if larger.is_dir() else name, device)

    load.__name__ = name.replace("-", "_")
    load.__doc__ = f"The trained network {name!r}; its method predict classifies pictures."
    return load


def network(name, device="cpu"):
    """Load any trained network by its name or folder, as ``paircaps.load`` does."""
    return _load(name, device)


digits = _loader("digits")
digits_dynamic = _loader("digits-dynamic")
digits_em = _loader("digits-em")
digits_pool = _loader("digits-pool")
glyphs = _loader("glyphs")
fashion_mnist = _loader("fashion-mnist")
fashion_mnist_pool = _loader("fashion-mnist-pool")
cifar10 = _loader("cifar10")
cifar10_pool = _loader("cifar10-pool")
multi_mnist = _loader("multi-mnist")
