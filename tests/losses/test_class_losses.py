"""Spread, centripetal and negative log against plain loops, their gradients, and what they refuse."""

import math

import pytest
import torch

from paircaps.functional import centre_distance
from paircaps.losses import Spread, centripetal_loss, nll_loss, present_classes, spread_loss

LABELS = torch.tensor([2, 0, 3])
TWO_LABELS = torch.tensor([[2, 1], [0, 3], [3, 1]])


def activations(seed=0):
    return torch.rand(3, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def poses(seed=0):
    return torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def named(labels):
    return [[label] if isinstance(label, int) else label for label in labels.tolist()]


def spread_loop(activation, labels, margin):
    found = []
    for row, own in zip(activation.tolist(), named(labels), strict=True):
        total = 0.0
        for t in own:
            for i, other in enumerate(row):
                if i not in own:
                    total += max(0.0, margin - (row[t] - other)) ** 2
        found.append(total / len(own))
    return found


def in_steps(excess, width, height):
    total, slope = 0.0, height
    while excess > 0:
        total += slope * min(excess, width)
        excess, slope = excess - width, slope + height
    return total


def centripetal_loop(pose, labels, hit=0.1, miss=0.9, weight=0.5, width=0.1, height=0.2, ghost=False):
    found = []
    for capsules, own in zip(pose.tolist(), named(labels), strict=True):
        total, of_absent = 0.0, []
        for j, coordinates in enumerate(capsules):
            distance = math.sqrt(sum((x - 0.5) ** 2 for x in coordinates))
            if j in own:
                total += in_steps(distance - hit, width, height)
            else:
                of_absent.append((distance, weight * in_steps(miss - distance, width, height)))
        found.append(total + sum(cost for _, cost in sorted(of_absent)[1 if ghost else 0 :]))
    return found


def nll_loop(activation, labels):
    return [
        -sum(math.log(row[t]) for t in own) / len(own)
        for row, own in zip(activation.tolist(), named(labels), strict=True)
    ]


@pytest.mark.parametrize("labels", [LABELS, TWO_LABELS])
def test_losses_are_those_of_plain_loops(labels):
    a, pose = activations(), poses()
    present = present_classes(labels, a)
    for margin in (0.2, 0.9):
        expected = torch.tensor(spread_loop(a, labels, margin), dtype=torch.float64)
        torch.testing.assert_close(spread_loss(a, present, margin, "none"), expected)
    zones = {"hit_margin": 0.3, "miss_margin": 0.6, "absent_weight": 2.0}
    for options in ({}, zones, {**zones, "step_width": 0.07, "step_height": 0.5, "ghost": True}):
        expected = torch.tensor(centripetal_loop(pose, labels, *options.values()), dtype=torch.float64)
        torch.testing.assert_close(centripetal_loss(pose, present, "none", **options), expected)
    torch.testing.assert_close(
        nll_loss(a, present, "none"), torch.tensor(nll_loop(a, labels), dtype=torch.float64), rtol=1e-7, atol=0
    )


@pytest.mark.parametrize("loss", [spread_loss, centripetal_loss, nll_loss])
def test_indices_are_the_same_as_present_classes_and_reductions_add_up(loss):
    inputs = poses() if loss is centripetal_loss else activations()
    each = loss(inputs, LABELS, reduction="none")
    assert each.shape == (3,)
    torch.testing.assert_close(loss(inputs, present_classes(LABELS, activations()), reduction="none"), each)
    torch.testing.assert_close(loss(inputs, LABELS, reduction="sum"), each.sum())
    torch.testing.assert_close(loss(inputs, LABELS), each.mean())


@pytest.mark.parametrize("labels", [LABELS, TWO_LABELS])
@pytest.mark.parametrize("loss", [spread_loss, centripetal_loss, nll_loss])
def test_gradients_are_those_of_differences(loss, labels):
    inputs = (poses() if loss is centripetal_loss else activations()).requires_grad_()
    present = present_classes(labels, activations())
    assert torch.autograd.gradcheck(lambda x: loss(x, present), inputs)


@pytest.mark.parametrize("loss", [spread_loss, centripetal_loss, nll_loss])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_inside(loss, dtype):
    inputs = (poses() if loss is centripetal_loss else activations()).to(dtype)
    result = loss(inputs, LABELS)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), loss(inputs.double(), LABELS), rtol=1e-2, atol=0)


@pytest.mark.parametrize("loss", [spread_loss, centripetal_loss, nll_loss])
def test_wrong_inputs_are_refused(loss):
    inputs = poses() if loss is centripetal_loss else activations()
    with pytest.raises(ValueError, match=r"target must hold class indices of shape \(3,\) or one value per class"):
        loss(inputs, torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match=r"class indices must lie in 0\.\.3, got 4"):
        loss(inputs, torch.tensor([0, 4, 1]))
    with pytest.raises(TypeError, match="target must hold class indices as integers"):
        loss(inputs, torch.zeros(3))
    with pytest.raises(ValueError, match="reduction must be one of"):
        loss(inputs, LABELS, reduction="max")
    with pytest.raises(TypeError, match="must be a tensor"):
        loss(inputs.tolist(), LABELS)


def test_a_margin_that_is_kept_costs_nothing():
    assert spread_loss(torch.tensor([[0.95, 0.05, 0.0]]), torch.tensor([0])) == 0
    pose = torch.full((1, 2, 16), 0.5)
    pose[0, 1] = 1.0
    assert centre_distance(pose).tolist() == [[0.0, 2.0]]
    assert centripetal_loss(pose, torch.tensor([0])) == 0
    assert nll_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0])) == 0


def test_the_middle_itself_has_a_gradient_of_zero():
    pose = torch.full((1, 1, 4), 0.5, requires_grad=True)
    centripetal_loss(pose, torch.tensor([0])).backward()
    assert pose.grad.abs().sum() == 0


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-8])
def test_a_dead_class_has_a_finite_loss_and_is_pulled_up(value):
    activation = torch.tensor([[value, 1.0]], requires_grad=True)
    loss = nll_loss(activation, torch.tensor([0]))
    assert loss.item() == pytest.approx(-math.log(1e-8), rel=1e-5)
    loss.backward()
    assert activation.grad[0, 0] == pytest.approx(-1e8, rel=1e-4)


def test_the_margin_rises_along_a_line_to_exactly_its_end():
    loss = Spread()
    assert [round(loss.margin(torch.tensor(share)).item(), 6) for share in (0.0, 0.5, 1.0)] == [0.2, 0.55, 0.9]


@pytest.mark.parametrize("end", [-0.1, 1.5, float("nan")])
def test_a_margin_outside_of_the_activations_is_refused(end):
    with pytest.raises(ValueError, match="margin_end must be from 0 to 1"):
        Spread(margin_end=end)
