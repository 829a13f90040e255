import math

import pytest
import torch
import torch.nn.functional as F

from paircaps.functional import margin_loss
from paircaps.losses import Loss, Objective, Outputs, is_right, spread_loss
from paircaps.models import ResNetCapsules
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.routing import FMAgreement


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
    losses = objective.losses(Outputs(capsules), labels, objective.network.decoder(capsules, labels), images)
    torch.testing.assert_close(objective(images, labels, images).loss, losses.total)
    assert losses.double().total.item() == losses.class_loss.item() + 0.25 * losses.squared_error.item()
    assert objective.losses(Outputs(capsules), labels, None, images).total == losses.class_loss


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


def test_certainties_are_those_of_the_activations_or_of_the_loss():
    for routing, name, certainty in (
        ("fm", "cross-entropy", "softmax"),
        ("fm", "margin", "activation"),
        ("fm", "spread", "softmax"),
        ("dynamic", "cross-entropy", "activation"),
        ("dynamic", "nll", "activation"),
        ("em", "spread", "activation"),
    ):
        assert Objective(network(routing), Loss(name)).certainty == certainty, (routing, name)


class Asking(FMAgreement):
    preferred_loss = "spread"


class AskingForOneLabel(FMAgreement):
    preferred_loss = "cross-entropy"


def test_auto_takes_what_the_routing_asks_for(monkeypatch):
    asking = network(Asking)
    assert Objective(asking, Loss()).loss_name == "spread"
    assert Objective(network(Asking, labels=2), Loss()).loss_name == "spread"
    assert Objective(network(AskingForOneLabel, labels=2), Loss()).loss_name == "margin", "two labels"
    assert Objective(asking, Loss("margin")).loss_name == "margin", "what a recipe says counts"


def test_what_the_model_asks_for_wins_over_its_routing(monkeypatch):
    monkeypatch.setattr(ResNetCapsules, "preferred_loss", "margin")
    assert Objective(network(Asking), Loss()).loss_name == "margin"
    assert Objective(network(), Loss()).loss_name == "margin"


@pytest.mark.parametrize(
    ("loss", "routing", "labels", "complaint"),
    [
        (
            Loss("nll"),
            "fm",
            1,
            r"nll needs activations in 0\.\.1, .* resnet-caps-small have no bound: use cross",
        ),
        (Loss("nll"), "fm", 2, "have no bound: use margin, or a routing"),
        (
            Loss("centripetal"),
            "em",
            1,
            "which those of resnet-caps-small are not: use auto",
        ),
        (Loss("spread", options={"margin_end": 2}), "em", 1, "margin_end must be from 0 to 1, got 2"),
        (Loss("margin", label_smoothing=0.1), "em", 1, "label_smoothing is cross-entropy's; margin has none, got 0.1"),
    ],
)
def test_a_loss_that_does_not_fit_is_refused(loss, routing, labels, complaint):
    with pytest.raises(ValueError, match=complaint):
        Objective(network(routing, labels=labels), loss)


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="loss 'spread' has no option 'margn'; it takes margin_start, margin_end"):
        Objective(network(), Loss("spread", options={"margn": 0.3}))


def test_the_margin_of_spread_follows_the_progress_of_training_alone():
    objective = Objective(network("em"), Loss("spread", options={"margin_start": 0.1, "margin_end": 0.5}))
    capsules, labels, images = objective.network(torch.rand(3, 1, 16, 16)), torch.tensor([0, 1, 2]), torch.empty(0)

    def value(progress):
        objective.set_progress(progress)
        return objective.losses(Outputs(capsules), labels, None, images).class_loss

    for progress, margin in ((0.0, 0.1), (0.25, 0.2), (1.0, 0.5)):
        torch.testing.assert_close(value(progress), spread_loss(capsules.activation, labels, margin, "sum"))
    objective.eval()
    assert value(0.0) == value(1.0), "an evaluation has the margin of the end, whenever it is"
    assert "progress" not in objective.state_dict()


def test_a_new_objective_stands_at_the_end():
    assert Objective(network("em"), Loss("spread")).progress == 1
