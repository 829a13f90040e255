"""Dimensions are measured on a network whose poses and drawings are known."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from explain.small import small_network, some_images
from torch import nn

from paircaps.data import load_dataset
from paircaps.errors import PaircapsError
from paircaps.explain import dimension_ranges
from paircaps.explain.dimensions import MOST, measure_dimensions
from paircaps.explain.perturb import DimensionRanges
from paircaps.explain.warps import UprightImages, upright_images, warp_randomly
from paircaps.functional import Capsules

SIDE = 40


class Blob:
    """Draws a spot of light: where it lies is told by a function of the pose."""

    def __init__(self, place):
        self.place = place

    def draw(self, poses, chosen):
        pose = poses[torch.arange(len(poses)), chosen]
        x, y = self.place(pose)
        line = torch.arange(SIDE).float()
        across, down = (torch.exp(-((line - middle[:, None]) ** 2) / 20) for middle in (x, y))
        return (down[:, :, None] * across[:, None, :]).unsqueeze(1)


class Artist(nn.Module):
    """Knows where the ink is; its pose is x, y, their sum, and noise; of its second class y, x, and so on."""

    def __init__(self, place=lambda pose: (pose[:, 0], pose[:, 1]), more=0):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))
        self.decoder = Blob(place)
        self.model = SimpleNamespace(num_classes=2, pose_dim=4 + more)
        self.more = more
        self.most_at_once = 0

    def evaluating(self):
        return nullcontext()

    def forward(self, images):
        self.most_at_once = max(self.most_at_once, len(images))
        ink = images.float().sum(1)
        line = torch.arange(SIDE) + 0.5
        mass = ink.sum((1, 2)).clamp_min(1)
        x, y = (ink.sum(1) @ line) / mass, (ink.sum(2) @ line) / mass
        rest = [torch.randn(len(x))] + [0.01 * torch.randn(len(x)) for _ in range(self.more)]
        pose = torch.stack([torch.stack([a, b, x + y, *rest], -1) for a, b in ((x, y), (y, x))], 1)
        return Capsules(pose, pose, torch.stack([x, -x], -1))


@pytest.fixture(scope="module")
def upright():
    base = upright_images(load_dataset("affine-glyphs", "test"))
    two = base.labels < 2
    return UprightImages(base.images[two], base.labels[two], base.size)


def samples(upright):
    return warp_randomly(upright, 40, 0, "samples").images


def measured(network, upright):
    K = network.model.pose_dim
    ranges = DimensionRanges(torch.full((2, K), 10.0), torch.full((2, K), 30.0))
    if network.more:
        ranges.high[:, 4:] = 10.0 + torch.arange(network.more)
    return finish(measure_dimensions(network, samples(upright), ranges, upright))


def finish(steps):
    """Take all steps: the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def by_index(dimensions):
    return {dimension.index: dimension for dimension in dimensions}


def test_a_dimension_is_named_by_what_it_follows_and_only_where_that_is_clear(upright):
    # the sum moves the drawing down, and the noise to the side: seen they are, but not clear
    moving = Artist(lambda pose: (pose[:, 0] + 0.1 * pose[:, 3], 0.5 * pose[:, 1] + 0.25 * pose[:, 2]))
    found = by_index(measured(moving, upright)[0])
    assert [found[index].follows for index in range(4)] == ["x", "y", None, None]
    assert found[0].r2 > 0.9
    assert found[2].r2 is None, "a sum of both follows neither more than the other"


def test_every_class_has_names_of_its_own(upright):
    exchanged = Artist(lambda pose: (pose[:, 1], pose[:, 0]))
    found = by_index(measured(exchanged, upright)[1])
    assert [found[index].follows for index in range(4)] == ["y", "x", None, None]


def test_a_name_that_the_reconstruction_belies_is_not_given(upright):
    """The first number of the pose is x, but the drawing goes up and down with it."""
    belied = by_index(measured(Artist(lambda pose: (pose[:, 1], pose[:, 0])), upright)[0])
    assert belied[0].follows is belied[1].follows is None


def test_dimensions_come_in_falling_order_of_what_they_change(upright):
    little_x = Artist(lambda pose: (0.2 * pose[:, 0], pose[:, 1]))
    dimensions = measured(little_x, upright)[0]
    assert [dimension.index for dimension in dimensions][:2] == [1, 0]
    assert dimensions[0].change > 2 * dimensions[1].change > 0
    assert dimensions[2].change == dimensions[3].change == 0


def test_change_is_the_mean_change_of_a_pixel_over_the_range(upright):
    class Grey(Blob):
        def draw(self, poses, chosen):
            level = (poses[torch.arange(len(poses)), chosen, 0] - 10) / 20  # 0 to 1 over the range
            return level.clamp(0, 1)[:, None, None, None].expand(-1, 1, SIDE, SIDE)

    network = Artist(lambda pose: pose)
    network.decoder = Grey(None)
    seen = by_index(measured(network, upright)[0])
    x = network(samples(upright)).pose[:, 0, 0]
    own = ((x.topk(3).values - 10) / 20).mean()
    assert seen[0].change == pytest.approx(((own - 0) + (own - 0.5).abs() + (1 - own)).item() / 3, abs=1e-5)


def test_without_images_to_warp_nothing_is_named(upright):
    images = samples(upright)
    ranges = DimensionRanges(torch.full((2, 4), 10.0), torch.full((2, 4), 30.0))
    for dimensions in finish(measure_dimensions(Artist(), images, ranges, None)):
        assert len(dimensions) == 4
        assert {dimension.follows for dimension in dimensions} == {None}


def test_a_class_with_hardly_an_image_gets_no_names(upright):
    zeros = upright.labels == 0
    only = UprightImages(upright.images[zeros], upright.labels[zeros], upright.size)
    first, second = measured(Artist(), only)
    assert by_index(first)[0].follows == "x"
    assert {dimension.follows for dimension in second} == {None}


def test_of_a_long_pose_the_dimensions_with_the_widest_ranges_are_measured(upright):
    dimensions = measured(Artist(more=30), upright)[0]
    # the widest: the first four, 20 each, and of the rest those with the highest numbers
    assert sorted(by_index(dimensions)) == [*range(4), *range(34 - (MOST - 4), 34)]


def test_it_goes_in_small_steps_so_that_a_server_can_answer_in_between(upright):
    network = Artist()
    images = samples(upright)
    ranges = DimensionRanges(torch.full((2, 4), 10.0), torch.full((2, 4), 30.0))
    assert sum(1 for _ in measure_dimensions(network, images, ranges, upright)) >= 2 + 4 + 6
    assert network.most_at_once == 32


@pytest.mark.parametrize("decoder", ["deconv", "dense", "deepcaps"])
def test_a_real_network_is_measured(decoder):
    network = small_network(decoder=decoder, classes=("a", "b"))
    images = some_images(6)
    found = finish(measure_dimensions(network, images, dimension_ranges(network, images), None))
    for dimensions in found:
        assert sorted(by_index(dimensions)) == list(range(16))
        assert all(0 < dimension.change < 1 for dimension in dimensions)
    assert [d.index for d in found[0]] != [d.index for d in found[1]]


def test_without_a_decoder_there_is_nothing_to_measure():
    network = small_network(decoder="none")
    with pytest.raises(PaircapsError, match="without a decoder"):
        next(measure_dimensions(network, some_images(2), None, None))
