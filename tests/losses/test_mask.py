import pytest
import torch

from paircaps.losses import MASK_BRIGHTNESS, mask_loss, target_masks


def test_masks_are_where_a_digit_alone_is_bright():
    originals = torch.zeros(2, 2, 1, 2, 3)
    originals[0, 0, 0, 0] = 0.9  # digit 4
    originals[0, 1, 0, :, 1] = 0.3  # digit 1, which overlaps
    originals[1, 0, 0, 1, 2] = MASK_BRIGHTNESS  # not above it
    masks = target_masks(torch.tensor([[4, 1], [0, 2]]), originals, 5)
    assert masks.shape == (2, 5, 2, 3)
    assert masks[0, 4].tolist() == [[1, 1, 1], [0, 0, 0]]
    assert masks[0, 1].tolist() == [[0, 1, 0], [0, 1, 0]]
    assert masks[0].sum() == 5
    assert masks[1].sum() == 0
    in_bytes = (originals * 255).floor().to(torch.uint8)
    assert torch.equal(target_masks(torch.tensor([[4, 1], [0, 2]]), in_bytes, 5), masks)


def test_masks_of_an_index_have_class_k_minus_1_where_it_is_k():
    index = torch.tensor([[[0, 1, 2], [2, 2, 0]]], dtype=torch.uint8)
    masks = target_masks(torch.tensor([1]), index, 3)
    assert masks[0].tolist() == [[[0, 1, 0], [0, 0, 0]], [[0, 0, 1], [1, 1, 0]], [[0, 0, 0], [0, 0, 0]]]


def test_the_loss_of_masks_against_a_plain_loop():
    generator = torch.Generator().manual_seed(0)
    found = torch.randn(2, 3, 4, 5, generator=generator)
    true = (torch.rand(2, 3, 4, 5, generator=generator) > 0.6).float()
    expected = 0.0
    for logits, mask in zip(found.flatten(0, 1).double(), true.flatten(0, 1).double(), strict=True):
        p = 1 / (1 + (-logits).exp())
        cross_entropy = -(mask * p.log() + (1 - mask) * (1 - p).log()).mean()
        dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
        expected += float(10 * cross_entropy + dice)
    assert mask_loss(found, true).item() == pytest.approx(expected, rel=1e-5)


def test_perfect_masks_have_no_loss():
    true = torch.zeros(1, 2, 4, 4)
    true[0, 0, :2] = 1
    assert mask_loss(200 * true - 100, true).item() == pytest.approx(0, abs=1e-5)
