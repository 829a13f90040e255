"""Variational Bayes routing beyond the suite of all routings: digamma function, absent children, and batch norms."""

import pytest
import torch

from paircaps import CapsuleLayer, ConvCapsuleLayer, create_model, create_routing
from paircaps.layers import settle
from paircaps.losses import Loss
from paircaps.routing.vb import digamma, vb_routing
from paircaps.testing import random_votes

J = 3


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
def test_digamma_is_that_of_pytorch(dtype, tolerance):
    x = torch.cat([torch.linspace(0.5, 50, 500), torch.logspace(1, 8, 100)]).to(dtype)
    torch.testing.assert_close(digamma(x), torch.digamma(x.double()).to(dtype), rtol=tolerance, atol=tolerance)


def test_its_gradient_is_the_trigamma_function():
    x = torch.linspace(0.5, 50, 500, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(digamma(x).sum(), x)
    torch.testing.assert_close(slope, torch.polygamma(1, x.detach()), rtol=1e-9, atol=1e-12)


def test_it_has_no_operator_that_onnx_lacks():
    votes, activation = random_votes(2, out_capsules=J, dtype=torch.float32)
    program = torch.export.export(create_routing("vb", J).eval(), (votes, activation))
    assert not [node for node in program.graph.nodes if "digamma" in str(node.target)]


def test_it_is_trained_by_cross_entropy_of_its_probabilities():
    routing = create_routing("vb", J)
    assert routing.bounded
    assert Loss().resolve(routing.bounded, 1, wanted=routing.preferred_loss) == "cross-entropy"


def test_a_child_that_is_not_there_has_no_say():
    votes, activation = random_votes(2, out_capsules=J)
    assert_alike(vb_routing(votes, None), vb_routing(votes, torch.ones_like(activation)))
    activation[:, 0] = 0
    assert_alike(vb_routing(votes, activation), vb_routing(votes[:, 1:], activation[:, 1:]))
    activation[:, 0] = -3.0  # as FM agreement says of children whose own children disagree
    assert_alike(vb_routing(votes, activation), vb_routing(votes[:, 1:], activation[:, 1:]))


def assert_alike(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_parents_without_children_are_their_priors():
    votes, activation = random_votes(2, out_capsules=J)
    found = vb_routing(votes, 0 * activation)
    assert (found.pose == 0).all()
    assert_alike(found.activation, found.activation[:1, :1].expand_as(found.activation))


def test_in_training_each_parent_has_the_statistics_of_the_batch():
    votes, activation = random_votes(50, out_capsules=J)
    routing = create_routing("vb", J).double()
    capsules = routing(votes, activation)
    logits = capsules.activation.logit()
    for values in (logits, capsules.pose.movedim(1, -1).flatten(0, 1)):
        torch.testing.assert_close(values.mean(0), torch.zeros(J, dtype=torch.float64))
        torch.testing.assert_close(values.var(0, correction=0), torch.ones(J, dtype=torch.float64), rtol=1e-3, atol=0)


def test_parents_of_a_kind_have_the_same_statistics_at_all_positions():
    layer = ConvCapsuleLayer(2, 3, routing="vb")
    capsules = layer(torch.randn(4, 6, 6, 2, 16))
    assert capsules.activation.shape == (4, 4, 4, 3)
    means = capsules.activation.logit().mean(dim=(0, 1, 2))
    torch.testing.assert_close(means, torch.zeros(3), rtol=0, atol=1e-4)


def test_one_image_is_too_few_to_train_on_and_enough_to_predict():
    layer = CapsuleLayer(6, J, routing="vb")
    with pytest.raises(ValueError, match="needs more than one image to train on"):
        layer(torch.randn(1, 6, 16))
    assert layer.eval()(torch.randn(1, 6, 16)).activation.shape == (1, J)


def test_momentum_and_settling_reach_its_norms():
    model = create_model("resnet-caps-small", image_size=16, routing="vb", norm_momentum=0.3)
    norms = model.layers[0].routing.pose_norm, model.layers[0].routing.activation_norm
    assert [norm.momentum for norm in norms] == [0.3, 0.3]
    before = [norm.running_mean.clone() for norm in norms]
    images = torch.rand(16, 1, 16, 16)
    settle(model, [images])
    assert not any(torch.equal(norm.running_mean, mean) for norm, mean in zip(norms, before, strict=True))
    with torch.no_grad():
        trained = model.train()(images).activation
    # running variances are those of a sample, divided by the count minus one
    torch.testing.assert_close(model.eval()(images).activation, trained, rtol=0, atol=0.05)
