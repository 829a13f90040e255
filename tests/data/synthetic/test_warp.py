import math

import numpy as np
import pytest
import torch
from PIL import Image

from paircaps.data.synthetic.poses import linear_map, moved_boxes
from paircaps.data.synthetic.warp import ink_boxes, place, warp, window


def poses(**changes):
    names = ("x", "y", "rotation", "scale", "shear")
    return torch.tensor([[changes.get(name, 1.0 if name == "scale" else 0.0) for name in names]])


def dot(row, column, size=21):
    image = torch.zeros(1, 1, size, size, dtype=torch.uint8)
    image[0, 0, row, column] = 255
    return image


def brightest(image):
    return divmod(int(image.flatten().argmax()), image.shape[-1])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_an_upright_pose_changes_nothing(dtype):
    images = torch.randint(256, (3, 2, 9, 12)).to(dtype)
    torch.testing.assert_close(warp(images, poses().expand(3, -1)), images, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"x": 3.0}, (10, 17)),  # to the right
        ({"y": 2.0}, (12, 14)),  # down
        ({"rotation": 90.0}, (6, 10)),  # what was on the right is above: counter-clockwise
        ({"rotation": -90.0}, (14, 10)),
        ({"rotation": 180.0}, (10, 6)),
        ({"scale": 2.0}, (10, 18)),
        ({"rotation": 90.0, "x": 5.0}, (6, 15)),  # turned first, then moved
    ],
)
def test_a_point_to_the_right_of_the_middle_goes_where_the_pose_says(change, where):
    assert brightest(warp(dot(10, 14), poses(**change))) == where


def test_shear_moves_rows_along_themselves():
    """x' = x + shear · y, with y pointing down: the lower part goes to the right."""
    assert brightest(warp(dot(16, 10), poses(shear=0.5))) == (16, 13)
    assert brightest(warp(dot(4, 10), poses(shear=0.5))) == (4, 7)
    assert brightest(warp(dot(10, 14), poses(shear=0.5))) == (10, 14)


def test_the_linear_map_is_rotation_after_shear_after_scale():
    pose = torch.tensor([0.0, 0.0, 30.0, 1.3, 0.2], dtype=torch.float64)
    angle = math.radians(30)
    rotation = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    expected = rotation @ np.array([[1, 0.2], [0, 1]]) * 1.3
    assert np.allclose(linear_map(pose).numpy(), expected)


def test_warp_agrees_with_pillow():
    """Another implementation of the same map, on a smooth picture."""
    y, x = torch.meshgrid(torch.arange(40.0), torch.arange(40.0), indexing="ij")
    image = (127 * (1 + torch.sin(x / 4) * torch.cos(y / 5))).to(torch.uint8)
    pose = torch.tensor([[2.5, -1.5, 25.0, 0.9, 0.15]])
    back = np.linalg.inv(linear_map(pose[0].double()).numpy())
    offset = np.array([20, 20]) - back @ (np.array([20, 20]) + pose[0, :2].numpy())
    data = (back[0, 0], back[0, 1], offset[0], back[1, 0], back[1, 1], offset[1])
    picture = Image.fromarray(image.numpy())
    theirs = np.asarray(picture.transform((40, 40), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR))
    ours = warp(image[None, None], pose)[0, 0].numpy()
    inside = (slice(12, 28), slice(12, 28))
    assert np.abs(ours[inside].astype(int) - theirs[inside]).max() <= 2


def test_an_image_is_warped_alike_alone_and_in_any_batch():
    images, pose = torch.randint(256, (37, 1, 28, 28), dtype=torch.uint8), torch.rand(37, 5) + 0.5
    whole = warp(images, pose, 40)
    assert whole.shape == (37, 1, 40, 40)
    for part in (slice(0, 1), slice(5, 6), slice(11, 36)):
        assert torch.equal(warp(images[part], pose[part], 40), whole[part])


def test_windows_and_places():
    images = torch.arange(2 * 4 * 5).reshape(2, 1, 4, 5)
    cut = window(images, torch.tensor([0, 2]), torch.tensor([3, 1]), (2, 2))
    assert cut[:, 0].tolist() == [[[3, 4], [8, 9]], [[31, 32], [36, 37]]]
    put = place(images + 1, torch.tensor([1, -2]), torch.tensor([0, 3]), (5, 6))
    expected = torch.zeros(2, 1, 5, 6, dtype=torch.int64)
    expected[0, 0, 1:5, 0:5] = images[0, 0] + 1
    expected[1, 0, 0:2, 3:6] = images[1, 0, 2:, :3] + 1
    assert torch.equal(put, expected)


def test_ink_boxes_are_the_edges_of_the_ink():
    images = torch.zeros(2, 1, 10, 8)
    images[0, 0, 2:5, 3:7] = 1
    images[1, 0, 9, 0] = 1
    assert ink_boxes(images).tolist() == [[-1, -3, 3, 0], [-4, 4, -3, 5]]
    turned = moved_boxes(ink_boxes(images)[:1], poses(rotation=90.0))
    torch.testing.assert_close(turned, torch.tensor([[-3.0, -3, 0, 1]]), atol=1e-5, rtol=0)


def test_ink_of_any_channel_counts():
    images = torch.zeros(1, 3, 6, 6)
    images[0, 2, 1:3, 4] = 1
    assert ink_boxes(images).tolist() == [[1, -2, 2, 0]]


def test_nothing_is_placed_as_nothing():
    nothing = torch.zeros(0, 1, 8, 8)
    corner = torch.zeros(0, dtype=torch.long)
    for side in (4, 8, 12):
        assert place(nothing, corner, corner, (side, side)).shape == (0, 1, side, side)
