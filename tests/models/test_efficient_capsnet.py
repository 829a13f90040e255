"""Efficient-CapsNet: the published sizes, a kernel over all that is left of an image, and images of other sizes."""

import pytest
import torch

from paircaps import count_parameters, create_model
from paircaps.functional import squash_exponential
from paircaps.models import EfficientCapsNet

NORB = {"num_classes": 5, "in_channels": 2, "image_size": 48}


def on_meta(name, **options):
    with torch.device("meta"):
        return create_model(name, **options)


def narrow(ending="", **options):
    return create_model(f"efficient-capsnet{ending}", 4, widths=(3, 4, 5), groups=6, primary_dim=2, **options)


@pytest.mark.parametrize(("ending", "options", "published"), [("", {}, 161_824), ("-norb", NORB, 151_664)])
def test_its_parameters_are_the_published_ones(ending, options, published):
    model = on_meta(f"efficient-capsnet{ending}", **options)
    assert count_parameters(model) == published
    classes, inputs = model.num_classes, model.in_channels
    stem, side = (7, 8) if ending else (5, 9)
    convolutions = 32 * (inputs * stem**2 + 1) + 64 * (32 * 9 + 1) + 64 * (64 * 9 + 1) + 128 * (64 * 9 + 1)
    norms = 2 * (32 + 64 + 64 + 128)
    primary = 128 * (side**2 + 1)
    votes_and_priors = 16 * classes * (8 * 16 + 1)
    assert published == convolutions + norms + primary + votes_and_priors
    assert count_parameters(on_meta(f"efficient-capsnet-pool{ending}", **options)) == pytest.approx(
        published, rel=0.005
    )


@pytest.mark.parametrize(
    ("size", "left"),
    [(28, (9, 9)), (32, (11, 11)), (36, (13, 13)), (40, (15, 15)), (48, (19, 19)), (64, (27, 27)), ((33, 25), (12, 8))],
)
def test_the_depthwise_kernel_covers_what_is_left_of_an_image(size, left):
    model = on_meta("efficient-capsnet", image_size=size)
    assert model.primary.conv.kernel_size == left
    assert model.primary.out_grid == (1, 1, 16)
    larger = count_parameters(model) - count_parameters(on_meta("efficient-capsnet"))
    assert larger == 128 * (left[0] * left[1] - 81)


def test_a_number_of_a_primary_capsule_is_a_weighted_sum_of_its_own_channel():
    model, images = narrow().eval(), torch.rand(3, 1, 28, 28)
    maps = model.features(images)
    kernel = model.primary.conv
    summed = torch.einsum("bchw,chw->bc", maps, kernel.weight[:, 0]) + kernel.bias
    expected = squash_exponential(summed.unflatten(1, (6, 2)))
    torch.testing.assert_close(model.primary(maps).s[:, 0, 0], expected)


def test_an_image_is_normalised_alone_in_the_variant_for_smallnorb():
    images = torch.rand(4, 1, 24, 24)
    alone, together = narrow("-norb", image_size=24), narrow(image_size=24)
    torch.testing.assert_close(alone(images).pose[:2], alone(images[:2]).pose)
    assert not torch.allclose(together(images).pose[:2], together(images[:2]).pose, atol=1e-4)


@pytest.mark.parametrize("ending", ["", "-norb"])
def test_the_smallest_images_that_it_takes(ending):
    smallest = 23 if ending else 11
    assert narrow(ending, image_size=smallest)(torch.rand(2, 1, smallest, smallest)).activation.shape == (2, 4)
    for name in (f"efficient-capsnet{ending}", f"efficient-capsnet-pool{ending}"):
        with pytest.raises(
            ValueError, match=f"too small for EfficientCapsNet, which needs at least {smallest}×{smallest}"
        ):
            create_model(name, image_size=smallest - 1)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"norm": "layer"}, ValueError, "norm must be one of 'batch', 'instance', got 'layer'"),
        ({"widths": (32, 64)}, ValueError, r"widths must be a tuple of 3 whole numbers, got \(32, 64\)"),
        ({"slope": 2.0}, ValueError, "slope must be from 0 to 1, got 2.0"),
        ({"stem_stride": 0}, ValueError, "stem_stride must be at least 1, got 0"),
        ({"groups": 0}, ValueError, "groups must be at least 1, got 0"),
    ],
)
def test_bad_options_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        EfficientCapsNet(routing="mean", **options)
