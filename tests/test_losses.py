import math

import pytest
import torch
import torch.nn.functional as F

from paircaps.functional import margin_loss
from paircaps.losses import MASK_BRIGHTNESS, Loss, Objective, is_right, mask_loss, target_masks
from paircaps.network import Network, NetworkSpec, Preparation


def network(routing="fm", decoder="none", size=16, labels=1, **options):
    arguments = {"num_classes": 4, "in_channels": 1, "image_size": size, "routing": routing, **options}
    preparation = Preparation((size, size), (size, size))
    return Network(NetworkSpec("resnet-caps-small", arguments, tuple("abcd"), preparation, decoder, labels))


@pytest.mark.parametrize(
    ("routing", "options", "labels", "expected"),
    [
        ("fm", {}, 1, "cross-entropy"),
        ("fm", {"routing_options": {"activation": "squash"}}, 1, "margin"),
        ("fm", {}, 2, "margin"),
        ("dynamic", {}, 1, "margin"),
        ("em", {}, 1, "margin"),
    ],
)
def test_auto_takes_the_loss_that_fits_the_activations(routing, options, labels, expected):
    assert Objective(network(routing, labels=labels, **options), Loss()).loss_name == expected


def test_cross_entropy_cannot_have_two_labels():
    with pytest.raises(ValueError, match="cross-entropy needs one label per image, these have 2: use margin"):
        Objective(network(labels=2), Loss("cross-entropy"))


def test_cross_entropy_is_e11_on_the_activations():
    objective = Objective(network(), Loss("cross-entropy")).eval()
    images, labels = torch.rand(3, 1, 16, 16), torch.tensor([2, 0, 3])
    a = objective.network(images).activation.double().tolist()
    by_hand = sum(
        math.log(sum(math.exp(a_j) for a_j in row)) - row[label] for row, label in zip(a, labels.tolist(), strict=True)
    )
    assert objective(images, labels, images).loss.item() == pytest.approx(by_hand, rel=1e-5)


def test_an_outcome_sums_over_images():
    objective = Objective(network(decoder="dense"), Loss(label_smoothing=0.1, decoder_weight=0.25)).eval()
    images, labels = torch.rand(5, 1, 16, 16), torch.tensor([0, 1, 2, 3, 0])
    outcome = objective(images, labels, images)
    capsules = objective.network(images)
    drawn = objective.network.decoder(capsules, labels)
    error = (drawn - images).square().sum()
    alone = F.cross_entropy(capsules.activation, labels, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(outcome.loss, alone + 0.25 * error)
    torch.testing.assert_close(outcome.reconstruction, 0.25 * error)
    assert outcome.right == (capsules.activation.argmax(-1) == labels).sum()


def test_training_and_evaluation_share_one_loss():
    objective = Objective(network(decoder="dense"), Loss(decoder_weight=0.25)).eval()
    images, labels = torch.rand(5, 1, 16, 16), torch.tensor([0, 1, 2, 3, 0])
    capsules = objective.network(images)
    losses = objective.losses(capsules.activation, labels, objective.network.decoder(capsules, labels), images)
    torch.testing.assert_close(objective(images, labels, images).loss, losses.total)
    assert losses.double().total.item() == losses.class_loss.item() + 0.25 * losses.squared_error.item()
    assert objective.losses(capsules.activation, labels, None, images).total == losses.class_loss


def test_two_labels_are_both_present():
    objective = Objective(network("dynamic", decoder="dense", labels=2), Loss(decoder_weight=0.5)).eval()
    images, labels = torch.rand(3, 1, 16, 16), torch.tensor([[0, 1], [2, 1], [3, 0]])
    originals = torch.rand(3, 2, 1, 16, 16)
    outcome = objective(images, labels, originals)
    present = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    capsules = objective.network(images)
    error = (objective.network.decoder(capsules, labels) - originals).square().sum()
    torch.testing.assert_close(outcome.loss, margin_loss(capsules.activation, present, "sum") + 0.5 * error)


def test_over_classes_is_passed_on():
    images, labels = torch.rand(3, 1, 16, 16), torch.tensor([0, 1, 2])
    made = network("em").eval()
    total, mean = (Objective(made, Loss(over_classes=over))(images, labels, images).loss for over in ("sum", "mean"))
    torch.testing.assert_close(total, 4 * mean)


def test_right_is_the_most_active_class_or_both_of_two():
    activation = torch.tensor([[0.1, 0.9, 0.5], [0.1, 0.9, 0.5], [0.8, 0.1, 0.7]])
    assert is_right(activation, torch.tensor([1, 2, 0])).tolist() == [True, False, True]
    assert is_right(activation, torch.tensor([[2, 1], [0, 1], [0, 2]])).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"name": "hinge"}, "name must be one of 'auto', 'cross-entropy', 'margin', 'mask', got 'hinge'"),
        ({"label_smoothing": 2}, "label_smoothing must be from 0 to 1, got 2"),
        ({"decoder": "big"}, "decoder must be one of"),
        ({"decoder_weight": float("nan")}, "decoder_weight must be"),
    ],
)
def test_bad_values_are_refused(values, complaint):
    with pytest.raises(ValueError, match=complaint):
        Loss(**values)


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


def test_a_network_with_masks_has_their_loss_and_no_other():
    assert Loss().resolve(True, 2, has_masks=True) == "mask"
    assert Loss(name="mask").resolve(True, 1, has_masks=True) == "mask"
    with pytest.raises(ValueError, match="margin is for networks that classify"):
        Loss(name="margin").resolve(True, 2, has_masks=True)
    with pytest.raises(ValueError, match="mask is for networks that give masks"):
        Loss(name="mask").resolve(True, 2)
