import pytest
import torch

from paircaps.losses import ClassLoss, Loss, Objective, follows_progress, list_losses, register_loss
from paircaps.losses.registry import _LOSSES
from paircaps.network import Network, NetworkSpec, Preparation


class Squares(ClassLoss):
    """Sum of the squared activations."""

    follows_progress = True

    def __init__(self, weight=1.0):
        self.weight = weight

    def __call__(self, outputs, labels, progress):
        return self.weight * progress * outputs.capsules.activation.square().sum()


@pytest.fixture
def squares(monkeypatch):
    monkeypatch.setattr(_LOSSES, "_factories", dict(_LOSSES._factories))
    register_loss("squares", Squares)


def test_a_registered_loss_is_a_name_of_recipes(squares):
    assert "squares" in list_losses()
    spec = NetworkSpec(
        "resnet-pool-small", {"num_classes": 2, "image_size": 16}, ("a", "b"), Preparation((16,) * 2, (16,) * 2)
    )
    objective = Objective(Network(spec), Loss("squares", options={"weight": 2.0})).eval()
    images = torch.rand(2, 1, 16, 16)
    expected = 2 * objective.network(images).activation.square().sum()
    torch.testing.assert_close(objective(images, torch.tensor([0, 1]), images).loss, expected)
    assert follows_progress("squares")
    assert not follows_progress("margin")
    assert not follows_progress("")


def test_names_that_cannot_be_registered(squares):
    with pytest.raises(ValueError, match="loss 'squares' is already registered"):
        register_loss("squares", Squares)
    with pytest.raises(ValueError, match="a loss cannot be named 'auto'"):
        register_loss("auto", Squares)


def test_what_is_no_class_loss_is_refused(squares):
    register_loss("three", lambda: 3)
    with pytest.raises(TypeError, match="loss 'three' was registered by a factory that gives int, no ClassLoss"):
        Loss("three").create("three")
