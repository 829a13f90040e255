"""Capsule layers learn, one on the other: the second one too."""

import pytest
import torch

from paircaps import create_model
from paircaps.bench.toy_task import measure_accuracy, segment_digits, train, update_batch_norm


@pytest.fixture(scope="module")
def digits():
    generator = torch.Generator().manual_seed(0)
    return segment_digits(2000, generator, size=20), segment_digits(500, generator, size=20)


def learn(digits, routing, depth, loss):
    (images, labels), (test_images, test_labels) = digits
    torch.manual_seed(0)
    hidden = (16,) * (depth - 1)
    model = create_model(
        "resnet-caps-small", image_size=20, routing=routing, widths=(8, 16, 32), hidden_capsules=hidden
    )
    losses = train(model, images, labels, steps=150, loss=loss, lr=3e-3, batch=64)
    update_batch_norm(model, images)
    return sum(losses[-10:]) / 10, measure_accuracy(model, test_images, test_labels)


@pytest.mark.parametrize(("depth", "at_most", "at_least"), [(1, 0.1, 0.95), (3, 0.2, 0.9), (6, 1.0, 0.65)])
def test_fm_learns_through_stacked_layers(digits, depth, at_most, at_least):
    loss, right = learn(digits, "fm", depth, "cross entropy")
    assert loss < at_most
    assert right > at_least


@pytest.mark.parametrize(("routing", "at_least"), [("dynamic", 0.9), ("em", 0.5)])
def test_the_rivals_learn_in_one_layer(digits, routing, at_least):
    _, right = learn(digits, routing, 1, "margin")
    assert right > at_least
