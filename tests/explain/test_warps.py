import torch

from paircaps.data import load_dataset
from paircaps.data.synthetic.glyphs import upright_glyphs
from paircaps.data.synthetic.warp import warp
from paircaps.explain.warps import RANGES, SHIFT, random_poses, upright_images, warp_one_way, warp_randomly, warp_sizes


def test_of_a_made_dataset_the_digits_it_is_made_of_are_warped():
    base = upright_images(load_dataset("affine-glyphs", "test").limit(50))
    assert len(base) == 60
    assert base.size == (40, 40)
    glyphs = upright_glyphs("test")
    everything = {bytes(image.numpy()) for image in glyphs.batch(torch.arange(60)).images}
    assert {bytes(image.numpy()) for image in base.images} == everything


def test_of_any_other_dataset_its_own_images():
    dataset = upright_glyphs("test")
    base = upright_images(dataset)
    assert base.size == (28, 28)
    assert sorted(base.labels.tolist()) == sorted(dataset.labels.tolist())


def test_poses_fill_their_ranges_and_no_more():
    poses = random_poses(4000, (40, 60), 0, "test")
    for column, low, high in (
        (0, -SHIFT * 60, SHIFT * 60),
        (1, -SHIFT * 40, SHIFT * 40),
        (2, -RANGES.rotation, RANGES.rotation),
        (3, *RANGES.scale),
        (4, -RANGES.shear, RANGES.shear),
    ):
        values, reach = poses[:, column], high - low
        assert low <= values.min() < low + 0.01 * reach
        assert high - 0.01 * reach < values.max() <= high
    assert poses.equal(random_poses(4000, (40, 60), 0, "test"))
    assert not poses.equal(random_poses(4000, (40, 60), 1, "test"))


def test_images_are_in_the_poses_that_are_told():
    base = upright_images(load_dataset("affine-glyphs", "test"))
    warped = warp_randomly(base, 130, 0, "test")
    rows = torch.arange(130) % 60
    assert warped.labels.equal(base.labels[rows])
    assert warped.images.equal(warp(base.images[rows], warped.pose, (40, 40)))


def test_one_warp_goes_both_ways_and_leaves_all_else():
    base = upright_images(load_dataset("affine-glyphs", "test"))
    turned = warp_one_way(base, 7, "rotation", 30.0)
    assert turned.pose[:, 2].tolist() == [30.0] * 7 + [-30.0] * 7
    assert (turned.pose[:, [0, 1, 4]] == 0).all()
    assert (turned.pose[:, 3] == 1).all()
    assert turned.labels.tolist() == base.labels[:7].tolist() * 2
    assert warp_one_way(base, 7, "scale", 0.5).pose[:, 3].tolist() == [0.5] * 7
    assert len(warp_one_way(base, 7, "x", 0).pose) == 7, "nothing to do needs doing once"


def test_sizes_begin_with_nothing():
    for kind in ("x", "y", "rotation", "shear"):
        assert warp_sizes(kind, (40, 40))[0] == 0
    assert 1.0 in warp_sizes("scale", (40, 40))
    assert warp_sizes("x", (40, 100))[-1] == 30
    assert warp_sizes("y", (40, 100))[-1] == 12


def test_a_canvas_that_is_no_square_is_high_and_wide():
    base = upright_images(load_dataset("affine-glyphs", "test", image_size=(40, 64)))
    assert base.size == (40, 64)
    assert warp_randomly(base, 3, 0, "test").images.shape == (3, 1, 40, 64)
