"""The measure itself is measured: on networks whose equivariance is known."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from paircaps.data import load_dataset
from paircaps.errors import PaircapsError
from paircaps.explain.equivariance import (
    Equivariance,
    Poses,
    _right_and_wrong,
    as_markdown,
    measure_equivariance,
    read_out,
)
from paircaps.explain.warps import SHIFT, UprightImages, upright_images, warp_one_way
from paircaps.functional import Capsules


def poses(count, pose_of, labels=3, seed=0, noise=0.0):
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(0, labels, (count,), generator=generator)
    truth = torch.randn(count, 5, generator=generator, dtype=torch.float64)
    pose = pose_of(truth, label)
    pose = pose + noise * torch.randn(pose.shape, generator=generator, dtype=torch.float64)
    return Poses(label, pose, truth, torch.ones(count, dtype=torch.bool))


def test_a_linear_pose_is_read_off_perfectly_though_each_class_has_its_own():
    maps = torch.randn(3, 5, 16, dtype=torch.float64)

    def linear(truth, label):
        return torch.einsum("nk,nkl->nl", truth, maps[label]) + label[:, None]

    torch.testing.assert_close(read_out(poses(300, linear), poses(300, linear, seed=1)), torch.ones(5).double())


def test_noise_has_nothing_to_be_read_off():
    def noise(truth, label):
        return torch.randn(len(truth), 8, dtype=torch.float64)

    r2 = read_out(poses(3000, noise), poses(3000, noise, seed=1))
    assert (r2.abs() < 0.05).all()


def test_r2_is_one_minus_the_part_that_is_missed():
    def first_two(truth, label):
        return truth[:, :2]

    r2 = read_out(poses(6000, first_two, noise=1.0), poses(6000, first_two, seed=1, noise=1.0))
    torch.testing.assert_close(
        r2[:2], torch.full((2,), 0.5).double(), atol=0.05, rtol=0
    )  # half of the variance is noise
    assert (r2[2:].abs() < 0.02).all()


def test_a_class_that_was_never_fitted_is_left_out():
    def linear(truth, label):
        return truth

    fit, test = poses(100, linear, labels=2), poses(100, linear, labels=3, seed=1)
    torch.testing.assert_close(read_out(fit, test), torch.ones(5).double())


class Weigher(nn.Module):
    """Knows where the ink is, and nothing else; says the first class whatever it sees."""

    model = None  # no capsules to look into

    def __init__(self, activation=lambda x, y: torch.ones_like(x)):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))
        self.activation_of = activation
        self.seen = []

    def evaluating(self):
        return nullcontext()

    def forward(self, images):
        ink = images.float().sum(1)
        rows, columns = torch.arange(ink.shape[1]) + 0.5, torch.arange(ink.shape[2]) + 0.5
        mass = ink.sum((1, 2)).clamp_min(1)
        x, y = (ink.sum(1) @ columns) / mass, (ink.sum(2) @ rows) / mass
        self.seen.append((x, y))
        pose = torch.stack([x, y, *[torch.zeros_like(x)] * 18], -1)
        activation = torch.zeros(len(x), 10)
        activation[:, 0] = self.activation_of(x, y)
        pose = pose.unsqueeze(1).expand(-1, 10, -1)
        return Capsules(pose, pose, activation)


@pytest.fixture(scope="module")
def bases():
    return [upright_images(load_dataset("affine-glyphs", split)) for split in ("train", "test")]


def test_a_network_that_knows_where_things_are_is_told_from_one_that_does_not(bases):
    seen = measure_equivariance("weigher", Weigher(), *bases, images=600)
    assert seen.r2["x"] > 0.97
    assert seen.r2["y"] > 0.97
    assert seen.r2["rotation"] < 0.3
    assert seen.r2["shear"] < 0.3
    assert seen.pose_dim == 20
    assert seen.r2_reduced["x"] == pytest.approx(seen.r2["x"], abs=1e-6), "all that is in it is in its first components"
    assert seen.upright == pytest.approx(0.1, abs=0.02), "it says 0 of everything"
    assert seen.warped == pytest.approx(0.1, abs=0.02)


def test_spread_is_the_deviation_under_warps_over_the_distance_of_right_and_wrong(bases):
    zeros = UprightImages(*(part[bases[1].labels == 0] for part in (bases[1].images, bases[1].labels)), bases[1].size)
    assert measure_equivariance("still", Weigher(), zeros, zeros, images=100).spread == 0
    wobbling = measure_equivariance("wobbling", Weigher(lambda x, y: 100 + x), zeros, zeros, images=100).spread
    deviation = 2 * SHIFT * 40 / 12**0.5  # of a uniform x; upright, the right capsule is at 120 and all others are at 0
    assert wobbling == pytest.approx(deviation / 120, rel=0.1)


def test_without_any_distance_there_is_no_spread(bases):
    flat = Weigher(lambda x, y: torch.zeros_like(x))
    assert measure_equivariance("flat", flat, *bases, images=100).spread is None


def test_accuracy_falls_where_the_network_stops_to_see(bases):
    class Blinkered(Weigher):
        def forward(self, images):
            capsules = super().forward(images)
            shift = (capsules.pose[:, 0, 0] - 20).abs()
            capsules.activation[:, 0] = (shift < 6).float()
            capsules.activation[:, 1] = 0.5
            return capsules

    curve = dict(measure_equivariance("blinkered", Blinkered(), *bases, images=100).curves["x"])
    zeros = (bases[1].labels == 0).double().mean().item()
    assert curve[0.0] == pytest.approx(zeros, abs=0.05)
    ones = (bases[1].labels == 1).double().mean().item()
    assert curve[12.0] == pytest.approx(ones, abs=0.01)


def row(name, reduced=None):
    kinds = dict.fromkeys(("x", "y", "rotation", "scale", "shear"), 0.5)
    curves = {kind: [(0.0, 1.0)] for kind in kinds}
    pose_dim, fewer = (73, kinds) if reduced else (16, None)
    return Equivariance(name, pose_dim, kinds, fewer, None, 1.0, 60, 0.5, curves).as_dict()


def test_the_table_has_a_row_a_network_and_says_what_it_is():
    data = {"name": "affine-glyphs", "fit": "train split", "test": "test split"}
    networks = [row("one"), row("two"), row("pooled", reduced=True)]
    text = as_markdown({"networks": networks, "data": data, "images": 100, "seed": 3, "machine": "a machine"})
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == ["| network", "| one", "| two", "| pooled", "| the same, reduced"]
    assert len({row.count("|") for row in rows}) == 1
    for words in (
        "20 degrees",
        "0.8 to 1.2",
        "Seed 3",
        "a machine",
        "100 warped images of affine-glyphs",
        "accuracy on 60 images",
    ):
        assert words in text


def of_class(base, label):
    own = base.labels == label
    return UprightImages(base.images[own], base.labels[own], base.size)


def test_fit_and_test_are_kept_apart(bases):
    """What is fitted on shows nothing of what is tested on: neither images nor poses."""
    network = Weigher()
    seen = measure_equivariance("weigher", network, of_class(bases[0], 0), of_class(bases[1], 0), images=100)
    assert seen.warped == seen.upright == 1.0
    fitted, tested = network.seen[0], network.seen[1]
    assert not torch.isclose(fitted[0], tested[0]).any(), "other poses"
    with pytest.raises(PaircapsError, match="no class in common"):
        measure_equivariance("weigher", Weigher(), of_class(bases[0], 0), of_class(bases[1], 1), images=100)
    assert measure_equivariance("weigher", Weigher(), bases[0], of_class(bases[1], 1), images=100).warped == 0.0, (
        "of the test images"
    )


def test_r2_counts_from_the_mean_of_what_was_fitted():
    def nothing(truth, label):
        return torch.zeros(len(truth), 2, dtype=torch.float64)

    fit, test = poses(100, nothing, labels=1), poses(100, nothing, labels=1, seed=1)
    shifted = [Poses(p.labels, p.pose, p.truth + 50, p.hits) for p in (fit, test)]
    torch.testing.assert_close(read_out(*shifted), torch.zeros(5).double(), atol=1e-9, rtol=0)


def test_curves_go_as_far_as_they_say(bases):
    network = Weigher()
    zeros = of_class(bases[1], 0)
    measure_equivariance("weigher", network, of_class(bases[0], 0), zeros, images=100)
    middle = network.seen[2][0].mean()  # after fit and test come the curves, x first: nothing, then 2 pixels both ways
    right, left = network.seen[3][0].chunk(2)
    assert (right - left).mean() / 2 == pytest.approx(2, abs=0.05)
    assert (right + left).mean() / 2 == pytest.approx(middle.item(), abs=0.05)


def test_spread_is_within_an_image_not_between_images(bases):
    """Activations that differ between images, but not under warps, have no spread."""
    zeros = of_class(bases[1], 0)

    class ByInk(Weigher):
        def forward(self, images):
            capsules = super().forward(images)
            font = torch.arange(len(images)) // max(1, len(images) // len(zeros))  # twenty warps of each, one by one
            capsules.activation[:, 0] = 10.0 + font
            return capsules

    assert measure_equivariance("by ink", ByInk(), zeros, zeros, images=100).spread == pytest.approx(0, abs=1e-6)


def test_wrong_capsules_are_all_but_the_right_one(bases):
    class Fixed(Weigher):
        def forward(self, images):
            capsules = super().forward(images)
            capsules.activation[:] = torch.arange(10.0)
            return capsules

    warped = warp_one_way(of_class(bases[1], 9), 2, "x", 0)
    right, wrong = _right_and_wrong(Fixed(), warped)
    assert right.tolist() == [9.0, 9.0]
    assert wrong.tolist() == [4.0, 4.0]  # of 0 to 8


def test_upright_is_not_warped_at_all(bases):
    class Upstanding(Weigher):
        def forward(self, images):
            capsules = super().forward(images)
            middle = (capsules.pose[:, 0, :2] - 20).abs().amax(-1) < 1.0
            capsules.activation[:, 0] = middle.float()
            capsules.activation[:, 1] = 0.5
            return capsules

    zeros = of_class(bases[1], 0)
    seen = measure_equivariance("upstanding", Upstanding(), zeros, zeros, images=200)
    assert seen.upright == 1.0
    assert seen.still == len(zeros)
    assert seen.warped < 0.3
