"""Every equation against a loop written straight from the paper."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import loops
from torch import nn

from paircaps import functional
from paircaps.functional import Capsules

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("children", [1, 2, 3, 17])
def test_pairwise_agreement_is_the_double_sum(children):
    votes = double(children, 3, 4)
    expected = tensor(loops.pairwise_agreement(votes.tolist()))  # E13
    torch.testing.assert_close(functional.pairwise_agreement(votes), expected, **EXACT)


@settings(deadline=None, max_examples=50, derandomize=True)
@given(
    leading=st.lists(st.integers(1, 3), max_size=3),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 5)),
    scale=st.floats(1e-6, 1e6),
)
def test_pairwise_agreement_is_the_double_sum_for_any_shape_and_scale(leading, sizes, scale):
    votes = scale * double(*leading, *sizes)
    s = functional.pairwise_agreement(votes).reshape(-1, *sizes[1:])
    for image, actual in zip(votes.reshape(-1, *sizes), s, strict=True):
        expected = tensor(loops.pairwise_agreement(image.tolist()))
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10 * scale**2)


def test_pairwise_agreement_without_the_half_is_twice_as_large():
    votes = double(5, 3, 4)
    s = functional.pairwise_agreement(votes)
    torch.testing.assert_close(functional.pairwise_agreement(votes, halve=False), 2 * s)


def test_gradient_of_the_activation_is_e12():
    votes = torch.nn.functional.normalize(double(6, 3, 4), dim=-1).requires_grad_()
    functional.fm_agreement(votes, normalize=False).activation.sum().backward()
    torch.testing.assert_close(votes.grad, tensor(loops.fm_activation_gradient(votes.tolist())), **EXACT)


def test_fm_pose_is_the_direction_of_s_at_any_length():
    for scale in (1e-3, 1.0, 1e17):
        capsules = functional.fm_agreement(torch.randn(7, 3, 4) * scale, normalize=False)
        torch.testing.assert_close(capsules.pose.norm(dim=-1), torch.ones(3))
        torch.testing.assert_close(
            torch.nn.functional.cosine_similarity(capsules.pose.double(), capsules.s.double(), dim=-1),
            torch.ones(3, dtype=torch.float64),
        )


def test_fm_normalises_votes_so_that_only_their_direction_counts():
    votes, lengths = double(7, 3, 4), torch.rand(7, 3, 1, dtype=torch.float64) + 0.5
    for one, other in zip(functional.fm_agreement(votes), functional.fm_agreement(votes * lengths), strict=True):
        torch.testing.assert_close(one, other, **EXACT)
    assert not torch.allclose(
        functional.fm_agreement(votes, normalize=False).s,
        functional.fm_agreement(votes * lengths, normalize=False).s,
    )


def test_fm_squash_activation_is_the_length_of_squashed_s():
    capsules = functional.fm_agreement(double(7, 3, 4), activation="squash")
    expected = [loops.squash(s) for s in capsules.s.tolist()]
    torch.testing.assert_close(capsules.activation, tensor(expected).norm(dim=-1), **EXACT)


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_dynamic_routing_is_its_loop(iterations):
    votes = 2 * double(6, 3, 4)
    expected = loops.dynamic_routing(votes.tolist(), iterations)
    for actual, wanted in zip(functional.dynamic_routing(votes, iterations), expected, strict=True):
        torch.testing.assert_close(actual, tensor(wanted), **EXACT)


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_em_routing_is_its_loop(iterations):
    votes, activation = double(6, 3, 4), torch.rand(6, dtype=torch.float64)
    beta_u, beta_a = double(3), 500 * double(3)
    arguments = [value.tolist() for value in (votes, activation, beta_u, beta_a)]
    expected = loops.em_routing(*arguments, iterations)
    actual = functional.em_routing(votes, activation, beta_u, beta_a, iterations)
    for one, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, tensor(wanted), **EXACT)


@pytest.mark.parametrize("scale", [1e-6, 1e3, 5e3])
def test_em_routing_is_its_loop_up_to_votes_of_ten_thousand(scale):
    # beyond that the floor under the variance grows; up to there it must not
    votes, activation = scale * double(6, 3, 4).clamp(-2, 2), torch.rand(6, dtype=torch.float64)
    votes[:, 0] = votes[:1, 0]  # a parent whose votes all agree: the floor is all of its variance
    zero = [0.0] * 3
    expected = loops.em_routing(votes.tolist(), activation.tolist(), zero, zero, 3)
    actual = functional.em_routing(votes, activation, tensor(zero), tensor(zero), 3)
    for one, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, tensor(wanted), rtol=1e-6, atol=1e-10)


def test_em_routing_takes_every_child_as_there_when_none_is_said():
    votes, beta = double(6, 3, 4), double(3)
    said = functional.em_routing(votes, torch.ones(6, dtype=torch.float64), beta, beta)
    for one, other in zip(functional.em_routing(votes, None, beta, beta), said, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_squash_is_e9_and_zero_at_zero():
    x = double(5, 8)
    torch.testing.assert_close(functional.squash(x), tensor([loops.squash(row) for row in x.tolist()]), **EXACT)
    zero = torch.zeros(3, 8, requires_grad=True)
    functional.squash(zero).sum().backward()
    assert zero.grad is not None
    assert (zero.grad == 0).all()


def test_the_exponential_squash_is_its_loop_and_has_a_slope_of_one_at_zero():
    x = double(5, 8)
    expected = tensor([loops.squash_exponential(row) for row in x.tolist()])
    torch.testing.assert_close(functional.squash_exponential(x), expected, **EXACT)
    assert torch.autograd.gradcheck(functional.squash_exponential, double(3, 4).requires_grad_())
    zero = torch.zeros(3, 8, requires_grad=True)
    functional.squash_exponential(zero).sum().backward()
    assert (zero.grad == 1).all()


SQUASHES = [functional.squash, functional.squash_exponential]


@pytest.mark.parametrize("squash", SQUASHES)
@pytest.mark.parametrize("scale", [1e15, 1e25, 1e37])
def test_squash_of_a_huge_vector_has_length_one(scale, squash):
    # x·‖x‖/(1 + ‖x‖²) squares ‖x‖, which is infinite in float32 from 1e19 on; the result was zero
    x = torch.randn(5, 8) * scale
    torch.testing.assert_close(squash(x).norm(dim=-1), torch.ones(5))


@pytest.mark.parametrize("squash", SQUASHES)
@pytest.mark.parametrize("length", [1e-15, 1e-6, 1e-3, 0.5, 1.0, 3.0, 1e3, 1e6, 1e20, 1e37])
def test_squash_of_any_length_is_as_precise_as_float32_is(length, squash):
    x = F.normalize(torch.randn(50, 8, dtype=torch.float64), dim=-1) * length
    rounded = x.float().requires_grad_()
    exact = rounded.detach().double().requires_grad_()
    direction = torch.randn(50, 8)
    found, truth = squash(rounded), squash(exact)
    torch.testing.assert_close(found.double(), truth, rtol=1e-6, atol=1e-44)
    (found * direction).sum().backward()
    (truth * direction).sum().backward()
    error = (rounded.grad.double() - exact.grad).abs().max()
    assert error <= 1e-6 * exact.grad.abs().max() + 1e-44


def test_squash_has_no_operator_that_onnx_lacks():
    class Squash(nn.Module):
        def forward(self, x):
            return functional.squash(x)

    program = torch.export.export(Squash(), (torch.randn(2, 8),))
    assert not [node for node in program.graph.nodes if "hypot" in str(node.target)]


def test_matrix_votes_are_algorithm_2():
    u, weight = double(3, 9), double(3, 2, 3, 3)
    expected = [[loops.matrix_vote(u[i].tolist(), weight[i, j].tolist()) for j in range(2)] for i in range(3)]
    torch.testing.assert_close(functional.matrix_votes(u, weight), tensor(expected), **EXACT)


def test_vector_votes_are_e1():
    u, weight = double(3, 5), double(3, 2, 5, 7)
    expected = [[loops.vector_vote(u[i].tolist(), weight[i, j].tolist()) for j in range(2)] for i in range(3)]
    torch.testing.assert_close(functional.vector_votes(u, weight), tensor(expected), **EXACT)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
def test_votes_have_free_leading_dims(leading):
    u, weight = double(*leading, 3, 4), double(3, 2, 2, 2)
    votes = functional.matrix_votes(u, weight)
    assert votes.shape == (*leading, 3, 2, 4)
    flat = functional.matrix_votes(u.reshape(-1, 3, 4), weight)
    torch.testing.assert_close(votes.reshape(flat.shape), flat)
    assert functional.vector_votes(u, double(3, 2, 4, 7)).shape == (*leading, 3, 2, 7)


def test_margin_loss_is_e10():
    activation = torch.rand(4, 5, dtype=torch.float64)
    label = torch.tensor([0, 3, 4, 3])
    present = torch.nn.functional.one_hot(label, 5)
    each = tensor([loops.margin_loss(a, t) for a, t in zip(activation.tolist(), present.tolist(), strict=True)])
    for target in (label, label.int(), present, present.bool(), present.double()):
        torch.testing.assert_close(functional.margin_loss(activation, target, "none"), each, **EXACT)
        torch.testing.assert_close(functional.margin_loss(activation, target, "sum"), each.sum(), **EXACT)
        torch.testing.assert_close(functional.margin_loss(activation, target), each.sum() / 4, **EXACT)


def test_margin_loss_of_the_published_runs_is_the_mean_over_classes():
    activation, label = torch.rand(4, 5), torch.tensor([0, 3, 4, 3])
    ours = functional.margin_loss(activation, label)
    torch.testing.assert_close(functional.margin_loss(activation, label, over_classes="mean"), ours / 5)


def test_margins_can_be_set():
    activation, present = torch.tensor([0.5, 0.5]), torch.tensor([1, 0])
    options = {"positive_margin": 0.7, "negative_margin": 0.3, "absent_weight": 0.25}
    each = functional.margin_loss(activation, present, "none", **options)
    torch.testing.assert_close(each, torch.tensor([0.2**2, 0.25 * 0.2**2]))


def test_margin_loss_takes_several_present_classes():
    activation = torch.tensor([0.95, 0.95, 0.05])
    assert functional.margin_loss(activation, torch.tensor([1, 1, 0])) == 0
    assert functional.margin_loss(activation, torch.tensor([1, 0, 0])) > 0


def test_margin_loss_compiles_without_a_break():
    activation, label = torch.rand(4, 5), torch.tensor([0, 3, 4, 3])
    compiled = torch.compile(functional.margin_loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(activation, label), functional.margin_loss(activation, label))


def test_reconstruction_loss_is_summed_over_pixels_and_averaged_over_images():
    drawn, image = torch.rand(4, 1, 5, 6), torch.rand(4, 1, 5, 6)
    each = ((drawn - image) ** 2).sum(dim=(1, 2, 3))
    torch.testing.assert_close(functional.reconstruction_loss(drawn, image, "none"), each)
    torch.testing.assert_close(functional.reconstruction_loss(drawn, image, "sum"), each.sum())
    torch.testing.assert_close(functional.reconstruction_loss(drawn, image), each.mean())


VOTES = torch.randn(2, 5, 3, 4)
BETA = torch.zeros(3)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: functional.fm_agreement(torch.randn(3, 4)), ValueError, r"\(3, 4\)"),
        (lambda: functional.fm_agreement([[1.0]]), TypeError, "list"),
        (lambda: functional.fm_agreement(votes=[[1.0]]), TypeError, "list"),
        (lambda: functional.fm_agreement(torch.ones(2, 3, 4, dtype=torch.int64)), TypeError, "int64"),
        (lambda: functional.fm_agreement(torch.randn(0, 3, 4)), ValueError, r"\(0, 3, 4\)"),
        (lambda: functional.fm_agreement(VOTES, activation="softmax"), ValueError, "'softmax'"),
        (lambda: functional.pairwise_agreement(torch.randn(4)), ValueError, r"\(4,\)"),
        (lambda: functional.dynamic_routing(VOTES, 0), ValueError, "iterations must be at least 1, got 0"),
        (lambda: functional.dynamic_routing(VOTES, 1.5), TypeError, "1.5"),
        (lambda: functional.em_routing(VOTES, None, BETA, BETA, 0), ValueError, "iterations .* got 0"),
        (lambda: functional.em_routing(VOTES, torch.ones(2, 4), BETA, BETA), ValueError, r"\(2, 5\).*\(2, 4\)"),
        (lambda: functional.em_routing(VOTES, None, torch.zeros(4), BETA), ValueError, r"beta_u.*\(3,\).*\(4,\)"),
        (lambda: functional.em_routing(VOTES, None, BETA, torch.zeros(1)), ValueError, r"beta_a.*\(3,\).*\(1,\)"),
        (lambda: functional.matrix_votes(torch.randn(5, 8), torch.randn(5, 3, 2, 4)), ValueError, "got 8"),
        (lambda: functional.matrix_votes(torch.randn(5, 4), torch.randn(6, 3, 2, 2)), ValueError, r"\(6, 3, 2, 2\)"),
        (lambda: functional.matrix_votes(torch.randn(4), torch.randn(5, 3, 2, 2)), ValueError, r"\(4,\)"),
        (lambda: functional.vector_votes(torch.randn(5, 8), torch.randn(5, 3, 4, 8)), ValueError, r"\(5, 3, 4, 8\)"),
        (lambda: functional.margin_loss(torch.rand(4, 5), torch.zeros(3).long()), ValueError, r"\(4,\).*\(3,\)"),
        (lambda: functional.margin_loss(torch.rand(4, 5), torch.zeros(4)), TypeError, "float32"),
        (lambda: functional.margin_loss(torch.rand(4, 5), torch.full((4,), 5)), ValueError, r"0\.\.4.*5"),
        (lambda: functional.margin_loss(torch.rand(4, 5), torch.full((4,), -1)), ValueError, r"0\.\.4.*-1"),
        (lambda: functional.margin_loss(torch.rand(4, 5), torch.zeros(4).long(), "avg"), ValueError, "'avg'"),
        (lambda: functional.reconstruction_loss(torch.rand(2, 1, 4, 4), torch.rand(2, 1, 4, 5)), ValueError, "4, 5"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_words_that_quote_it(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_capsules_is_a_named_tuple():
    assert Capsules._fields == ("s", "pose", "activation")
