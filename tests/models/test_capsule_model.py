"""What is told of the inside of a model is true."""

import pytest
import torch

from paircaps import CapsuleLayer, create_model
from paircaps.models import CapsuleModel


@pytest.fixture(
    params=[
        *("resnet-caps-small", "resnet-caps", "resnet-caps-grid-small", "capsnet-light", "fast-caps-tiny"),
        *("em-capsnet-small", "efficient-capsnet", "efficient-capsnet-norb"),
    ]
)
def model(request):
    narrower = {"resnet-caps": {"blocks": (1, 1, 1)}, "em-capsnet-small": {"kinds": 2, "conv_kinds": (2, 2)}}
    options = narrower.get(request.param, {})
    model = create_model(request.param, image_size=(64, 72), **options).eval()
    assert isinstance(model, CapsuleModel)
    return model


def test_the_middle_of_a_capsule_is_that_of_the_pixels_it_depends_on(model):
    image = torch.rand(1, 1, 64, 72, requires_grad=True)
    primary = model.primary(model.features(image)).s[0].flatten(0, 2)
    height, width = model.primary.grid
    row, column = height // 2, width // 2
    capsule = (row * width + column) * model.primary.groups + 1
    primary[capsule].abs().sum().backward()
    seen = image.grad[0, 0] != 0
    rows, columns = seen.any(1).nonzero().flatten() + 0.5, seen.any(0).nonzero().flatten() + 0.5
    middle = torch.stack([columns[0] + columns[-1], rows[0] + rows[-1]]) / 2
    torch.testing.assert_close(model.centres()[capsule], middle)


def test_there_is_a_middle_for_every_primary_capsule_within_the_image(model):
    centres = model.centres()
    assert centres.shape == (model.primary.out_capsules, 2)
    assert (centres >= 0).all()
    assert (centres <= torch.tensor([72, 64])).all()


def test_ascending_ends_in_what_the_model_says(model):
    images = torch.rand(2, 1, 64, 72)
    levels = model.ascend(images)
    above = [layer for layer in model.layers if isinstance(layer, CapsuleLayer)]
    assert [level.activation.flatten(1).shape[1] for level in levels if level.pose.dim() == 3] == [
        layer.out_capsules for layer in above
    ]
    assert levels[0].activation.flatten(1).shape[1] == model.primary.out_capsules
    assert len(levels) == len(model.layers) + 1
    torch.testing.assert_close(levels[-1], model(images))
