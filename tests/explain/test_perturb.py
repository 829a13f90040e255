import pytest
import torch
from explain.small import small_network, some_images

from paircaps.explain import dimension_ranges, perturb
from paircaps.explain.perturb import DimensionRanges, draw_poses
from paircaps.functional import Capsules


def reach_of(network, low=-1.0, high=1.0):
    shape = (network.model.num_classes, network.model.pose_dim)
    return DimensionRanges(torch.full(shape, low), torch.full(shape, high))


@pytest.mark.parametrize("decoder", ["deconv", "dense", "deepcaps"])
def test_one_dimension_changes_and_the_others_stay(decoder):
    network = small_network(decoder=decoder)
    seen = perturb(network, some_images(2), reach_of(network), 3, steps=5)
    assert seen.drawings.shape == (2, 16, 5, 1, 28, 28)
    assert seen.values[0, 7].tolist() == [-1, -0.5, 0, 0.5, 1]
    capsules = network(some_images(2))
    for image, dimension, step in ((0, 0, 0), (1, 7, 3), (1, 15, 4)):
        pose = capsules.pose.clone()
        pose[image, 3, dimension] = seen.values[image, dimension, step]
        drawn = network.decoder(Capsules(capsules.s, pose, capsules.activation), torch.tensor([3, 3]))[image]
        torch.testing.assert_close(seen.drawings[image, dimension, step], drawn)
    torch.testing.assert_close(seen.unchanged, network.decoder(capsules, torch.tensor([3, 3])))


def test_its_own_value_leaves_the_drawing_as_it_is():
    network = small_network()
    pose = network(some_images(1)).pose[0]
    seen = perturb(network, some_images(1), DimensionRanges(pose, pose), steps=2)
    for dimension in range(16):
        torch.testing.assert_close(seen.drawings[0, dimension, 0], seen.unchanged[0])


def test_ranges_hold_all_but_the_rarest_poses_class_by_class():
    network = small_network(size=28)
    images = some_images(300)
    reach = dimension_ranges(network, images)
    capsules = network(images)
    winner = capsules.activation.argmax(-1)
    label = int(winner.bincount(minlength=10).argmax())
    own = capsules.pose[winner == label, label]
    assert len(own) >= 20
    torch.testing.assert_close(reach.low[label], own.quantile(0.02, dim=0))
    torch.testing.assert_close(reach.high[label], own.quantile(0.98, dim=0))
    rare = int(winner.bincount(minlength=10).argmin())
    assert int((winner == rare).sum()) < 20
    torch.testing.assert_close(reach.low[rare], capsules.pose[:, rare].quantile(0.02, dim=0))


def test_poses_of_another_length_are_refused():
    network = small_network()
    with pytest.raises(ValueError, match="changed"):
        draw_poses(network.decoder, torch.zeros(1, 10, 16), torch.tensor([0]), torch.zeros(2, 15))


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="steps"):
        perturb(small_network(), some_images(1), reach_of(small_network()), steps=0)


def test_ranges_of_half_precision():
    network = small_network().bfloat16()
    reach = dimension_ranges(network, (some_images(40) / 255).bfloat16())
    assert reach.low.dtype == torch.bfloat16
