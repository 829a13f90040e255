"""Segmentation networks: a mask per class from capsules, and the U-Net of the same size."""

import pytest
import torch
import torch.nn.functional as F

from paircaps import Capsules, count_parameters, create_model, create_routing
from paircaps.models.caps_segment import beside
from paircaps.models.mask_parts import BLOCK, MaskTop, to_pixels
from paircaps.models.segment import LEAST_SHARE, mask_activation, mean_pose

NAMES = ["caps-segment", "unet-twin"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(36, 36), (8, 8), (37, 22)])
def test_masks_have_the_size_of_the_image_whatever_it_is(name, size):
    model = create_model(name, num_classes=3, image_size=36).eval()
    found = model.segment(torch.rand(2, 1, *size))
    assert found.masks.shape == (2, 3, *size)
    assert found.capsules.pose.shape == (2, 3, model.pose_dim)
    assert found.capsules.activation.shape == (2, 3)
    assert ((found.capsules.activation >= 0) & (found.capsules.activation <= 1)).all()


def test_poses_of_the_classes_lie_on_a_grid_of_a_quarter_of_the_size():
    """With rows and columns exchanged, a pose would be that of another place."""
    model = create_model("caps-segment", num_classes=3, image_size=36).eval()
    images = torch.zeros(1, 1, 40, 24)
    plain = model.masks_and_poses(images)[1]
    assert plain.shape == (1, 3, model.pose_dim, 10, 6)
    images[..., 32:, :4] = 1  # at the bottom left
    changed = (model.masks_and_poses(images)[1] - plain).abs().sum((0, 1, 2))
    row, column = divmod(int(changed.argmax()), 6)
    assert row >= 7
    assert column <= 2


@pytest.mark.parametrize(("name", "part"), [("caps-segment", "coarse"), ("unet-twin", "bottom")])
def test_what_is_known_of_the_coarse_grid_reaches_the_masks(name, part):
    torch.manual_seed(0)
    model = create_model(name, num_classes=3, image_size=36).eval()
    images = torch.rand(1, 1, 36, 36)
    before = model.segment(images).masks
    getattr(model, part).register_forward_hook(lambda module, arguments, maps: maps + 1)
    assert (model.segment(images).masks - before).abs().mean() > 1e-3


def test_pixels_come_back_to_their_places_whatever_the_size():
    for height, width in ((6, 8), (7, 5)):
        images = torch.arange(2.0 * height * width).view(1, 2, height, width)
        squares = F.pixel_unshuffle(F.pad(images, (0, width % 2, 0, height % 2)), BLOCK)
        assert torch.equal(to_pixels(squares, (height, width)), images)


def test_the_way_up_sees_coarse_maps_and_those_of_the_stem():
    torch.manual_seed(0)
    top = MaskTop(3, 4, 5).eval()
    coarse, fine = torch.randn(1, 3, 4, 4, requires_grad=True), torch.randn(1, 4, 8, 8, requires_grad=True)
    top(coarse, fine).sum().backward()
    for maps in (coarse, fine):
        assert maps.grad is not None
        assert maps.grad.abs().sum() > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_call_gives_the_capsules_of_the_masks(name):
    model = create_model(name, image_size=20).eval()
    images = torch.rand(2, 1, 20, 20)
    for one, other in zip(model(images), model.segment(images).capsules, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_masks_of_images_of_another_shape_are_refused(name):
    model = create_model(name, image_size=36)
    with pytest.raises(ValueError, match="images must have shape"):
        model.segment(torch.rand(2, 3, 36, 36))
    with pytest.raises(ValueError, match="images must have shape"):
        model.segment(torch.rand(2, 1, 7, 36))


@pytest.mark.parametrize("name", NAMES)
def test_before_the_training_masks_are_empty(name):
    torch.manual_seed(0)
    model = create_model(name, image_size=36)
    masks = model.segment(torch.rand(8, 1, 36, 36)).masks
    assert (masks > 0).float().mean() < 0.1


@pytest.mark.parametrize("routing", ["fm", "dynamic", "em"])
def test_any_routing_learns_masks(routing):
    torch.manual_seed(0)
    model = create_model("caps-segment", num_classes=2, image_size=12, routing=routing)
    model.segment(torch.rand(3, 1, 12, 12)).masks.square().mean().backward()
    silent = {name for name, weight in model.named_parameters() if weight.grad is None}
    presence = {
        name for name, _ in model.named_parameters() if "presence" in name
    }  # dynamic routing reads no activation
    assert silent == (presence if routing == "dynamic" else set())


@pytest.mark.parametrize("routing", ["fm", "dynamic", "em"])
def test_the_routing_is_injected_in_every_layer(routing):
    model = create_model("caps-segment", routing=routing)
    routings = [layer.routing for layer in (model.down, model.whole, model.up)]
    assert {type(one) for one in routings} == {type(create_routing(routing, 1))}
    assert len(set(map(id, routings))) == 3


@pytest.mark.parametrize("arguments", [{}, {"num_classes": 3, "in_channels": 3}, {"kinds": 6, "deep_kinds": 12}])
def test_the_twin_has_as_many_parameters(arguments):
    capsules, plain = (count_parameters(create_model(name, **arguments)) for name in NAMES)
    assert abs(capsules - plain) / capsules < 0.01


def test_each_layer_needs_a_routing_of_its_own():
    with pytest.raises(TypeError, match="a routing of its own"):
        create_model("caps-segment", routing=torch.nn.Identity())


def test_an_activation_is_the_mean_certainty_of_the_masks_own_pixels():
    masks = torch.full((1, 2, 10, 10), -50.0)
    masks[0, 0, :5] = 50.0  # half of the image, surely
    masks[0, 1, 0, 0] = 50.0  # a stray pixel
    activation = mask_activation(masks)[0]
    assert activation[0].item() == pytest.approx(50 / (50 + LEAST_SHARE * 100))
    assert activation[1].item() == pytest.approx(1 / (1 + LEAST_SHARE * 100))


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_sums_over_the_pixels_of_a_large_image_are_right_in_half_precision(dtype):
    """They were infinite divided by infinite from 256×256 pixels on."""
    masks = torch.full((1, 1, 400, 400), 2.0)
    poses = torch.full((1, 1, 3, 300, 300), 0.5)
    found = mask_activation(masks.to(dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), mask_activation(masks), rtol=1e-2, atol=0)
    torch.testing.assert_close(mean_pose(masks.to(dtype), poses.to(dtype)), torch.full((1, 1, 3), 0.5, dtype=dtype))


def test_a_pose_is_the_mean_over_the_positions_of_the_mask():
    masks = torch.full((1, 2, 4, 4), -50.0)
    masks[0, 0, :2, :2] = 50.0
    masks[0, 1, 2:, 2:] = masks[0, 1, :2, :2] = 50.0
    poses = torch.arange(4.0).reshape(1, 1, 1, 2, 2)  # the same for both classes
    assert mean_pose(masks, poses)[0, :, 0].tolist() == pytest.approx([0.0, 1.5])


def test_capsules_of_a_coarse_grid_are_copied_beside_those_of_a_fine_one():
    def capsules(height, width, kinds, first):
        s = first + torch.arange(float(height * width * kinds)).reshape(1, height, width, kinds, 1)
        return Capsules(s, s + 0.5, s[..., 0] + 0.25)

    coarse, fine = capsules(2, 1, 2, 100), capsules(3, 2, 1, 0)
    both = beside(coarse, fine)
    assert both.s.shape == (1, 3, 2, 3, 1)
    for row, column in ((0, 0), (1, 1), (2, 0)):
        above = row * 2 // 3
        assert both.s[0, row, column, :2, 0].tolist() == coarse.s[0, above, 0, :, 0].tolist()
        assert both.s[0, row, column, 2, 0] == fine.s[0, row, column, 0, 0]
    assert torch.equal(both.pose, both.s + 0.5)
    assert torch.equal(both.activation, both.s[..., 0] + 0.25)
