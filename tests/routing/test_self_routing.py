"""Self-routing beyond the suite of all routings: its layers, absent children, and the loss that it asks for."""

import pytest
import torch
from reference import loops
from reference.sized import sized_routing
from torch import nn

from paircaps import CapsuleLayer, Capsules, ConvCapsuleLayer, create_model, testing
from paircaps.routing.self_routing import self_routing

J = 3


def travelled(**options):
    """A routing whose layers are no longer zero."""
    routing = sized_routing("self", J, **options).double()
    for parameter in routing.parameters():
        nn.init.normal_(parameter)
    return routing


def inputs(*leading, routing=None):
    return testing.random_inputs(routing or sized_routing("self", J), *leading, out_capsules=J)


@pytest.mark.parametrize("children", [1, 2, 7])
def test_every_child_is_divided_by_a_layer_of_its_own(children):
    routing = travelled(children=children)
    weight, bias = routing.weight.tolist(), routing.bias.tolist()

    def oracle(*of_image):
        parts = loops.self_routing(*(part.tolist() for part in of_image), weight, bias)
        return Capsules(*(torch.tensor(part, dtype=torch.float64) for part in parts))

    testing.assert_matches_oracle(routing, oracle, J, children=children)


def test_the_checks_hold_for_layers_that_are_not_zero():
    routing = travelled()
    testing.check_routing(routing.float(), J)


def test_activations_add_up_to_one_and_do_not_depend_on_the_votes():
    routing = travelled()
    votes, *others = inputs(2)
    capsules = routing(votes, *others)
    torch.testing.assert_close(capsules.activation.sum(-1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(routing(votes.flip(0), *others).activation, capsules.activation)
    evidence = routing.evidence(votes, *others)
    torch.testing.assert_close(evidence.weighted.sum(-3), capsules.s)
    torch.testing.assert_close(evidence.coupling.sum(-1), torch.ones(2, 5, dtype=torch.float64))


def test_no_activations_are_all_ones():
    routing = travelled()
    votes, activation, children = inputs(2)
    found, expected = routing(votes, None, children), routing(votes, torch.ones_like(activation), children)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_child_that_is_not_there_is_not_heard():
    routing = travelled()
    votes, activation, children = inputs(2)
    activation[:, 1] = 0
    expected = routing(votes, activation, children)
    votes[:, 1], children[:, 1] = 1e9, -1e9
    for one, other in zip(routing(votes, activation, children), expected, strict=True):
        torch.testing.assert_close(one, other)
    activation[:, 1] = -3  # as of a layer below whose activations have no bound
    torch.testing.assert_close(routing(votes, activation, children).s, expected.s)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_where_nobody_is_there_no_parent_is(dtype):
    routing = travelled().to(dtype)
    votes, activation, children = (part.to(dtype).requires_grad_() for part in inputs(2))
    capsules = routing(votes, 0 * activation, children)
    assert (capsules.activation == 0).all()
    gradients = torch.autograd.grad(sum(part.sum() for part in capsules), [votes, activation, children])
    assert all(part.isfinite().all() for part in (*capsules, *gradients))


def test_a_parent_whom_all_children_have_left_still_has_a_pose():
    routing = travelled(children=2).float()
    with torch.no_grad():
        routing.weight.zero_()
        routing.bias.copy_(torch.tensor([[0.0, 0.0, -200.0], [0.0, 0.0, -200.0]]))  # e^−200 is no float
    votes = torch.tensor([1.0, 3.0])[:, None, None].expand(2, J, 4).clone().requires_grad_()
    capsules = routing(votes, torch.ones(2), torch.zeros(2, 6))
    assert capsules.activation[2] == 0
    torch.testing.assert_close(capsules.pose[2], torch.full((4,), 2.0))
    assert torch.autograd.grad(capsules.s.sum(), votes)[0].isfinite().all()


def test_its_loss_is_the_negative_logarithm():
    assert create_model("resnet-caps-small", routing="self").wanted_loss == "nll"


def test_layers_are_those_of_children_with_matrices_of_their_own():
    sizes = {"pose_dim": 4, "in_dim": 6, "transform": "vector", "routing": "self"}
    assert CapsuleLayer(40, J, **sizes).routing.weight.shape == (40, J, 6)
    assert CapsuleLayer((4, 5, 2), J, share="position", **sizes).routing.weight.shape == (2, J, 6)
    assert CapsuleLayer((4, 5, 2), J, share="all", **sizes).routing.bias.shape == (1, J)
    assert ConvCapsuleLayer(2, J, 3, **sizes).routing.weight.shape == (18, J, 6)


def test_children_outside_of_the_grid_are_not_there():
    layer = ConvCapsuleLayer(2, J, 3, padding=2, pose_dim=4, routing="self", vote_norm=None).double()
    for parameter in layer.routing.parameters():
        nn.init.normal_(parameter)
    u = torch.randn(2, 4, 4, 2, 4, dtype=torch.float64)
    corner = layer(u).activation[:, 0, 0]  # of a window that holds one position, the last of its nine
    logits = torch.einsum("bkd,kjd->bkj", u[:, 0, 0], layer.routing.weight[-2:]) + layer.routing.bias[-2:]
    torch.testing.assert_close(corner, logits.softmax(-1).mean(1))


def test_layers_of_another_shape_are_refused_in_words():
    votes, activation, children = inputs(2)
    with pytest.raises(
        ValueError, match=r"weight must have shape \(5, 3, 6\), a row per child and parent .*\(5, 2, 6\)"
    ):
        self_routing(votes, activation, children, torch.zeros(5, 2, 6), torch.zeros(5, 3))
    with pytest.raises(ValueError, match=r"bias must have shape \(5, 3\), one value per child and parent"):
        self_routing(votes, activation, children, torch.zeros(5, 3, 6), torch.zeros(5, 2))
    assert "in_capsules=5, in_dim=6" in repr(sized_routing("self", J))
