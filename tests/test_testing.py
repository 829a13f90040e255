"""The shipped checks notice routings that are wrong on purpose, each the one that is meant to."""

import warnings

import pytest
import torch
from reference import loops

from paircaps import Capsules, FMAgreement, Routing, create_routing, testing
from paircaps.functional import dynamic_routing, fm_agreement

J = 3


def as_capsules(s):
    return Capsules(s, s, s.norm(dim=-1))


def right(votes, activation=None):
    return fm_agreement(votes)


def softmax_over_children(votes, activation=None):
    """Dynamic routing as half of the public ports have it."""
    b = torch.zeros_like(votes[..., 0])
    v = votes.mean(dim=-3)
    for _ in range(3):
        v = (b.softmax(dim=-2).unsqueeze(-1) * votes).sum(dim=-3)
        b = b + (votes * v.unsqueeze(-3)).sum(dim=-1)
    return as_capsules(v)


def first_child_counts_double(votes, activation=None):
    return as_capsules(votes.mean(dim=-3) + votes[..., 0, :, :])


def children_count_by_their_place(votes, activation=None):
    weight = torch.arange(votes.shape[-3], dtype=votes.dtype)
    return as_capsules((votes * weight[:, None, None]).sum(dim=-3))


def images_share_a_mean(votes, activation=None):
    return as_capsules(votes.sum(dim=-3) / votes.abs().mean())


def wants_a_batch(votes, activation=None):
    b, i, j, k = votes.shape
    return as_capsules(votes.reshape(b, i, j, k).mean(dim=1))


def stops_a_gradient(votes, activation=None):
    agreement = votes.mean(dim=-3, keepdim=True).detach()
    return as_capsules((votes * agreement).sum(dim=-3))


def divides_by_a_length(votes, activation=None):
    s = votes.sum(dim=-3)
    return Capsules(s, s / s.square().sum(dim=-1, keepdim=True).sqrt(), s.sum(dim=-1))


def overflows(votes, activation=None):
    s = votes.float().pow(3).sum(dim=-3).to(votes.dtype)
    return Capsules(s, s, s.sum(dim=-1))


def has_no_gradient_at_zero(votes, activation=None):
    s = votes.sum(dim=-3)
    return Capsules(s, s, s.square().sum(dim=-1).sqrt())


def ignores_the_gradient_of_activations(votes, activation=None):
    weight = torch.ones_like(votes[..., 0, 0]) if activation is None else activation.detach()
    return as_capsules((votes * weight[..., None, None]).sum(dim=-3))


class IgnoresTheGradientOfItsParameter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, votes, activation=None):
        s = votes.sum(dim=-3)
        return Capsules(s * self.scale, s * self.scale.detach(), s.sum(dim=-1))


def computes_half_precision_in_float16(votes, activation=None):
    s = (votes.half() if votes.dtype == torch.bfloat16 else votes).sum(dim=-3).to(votes.dtype)
    return Capsules(s, s, s.mean(dim=-1))


def divides_by_the_other_children(votes, activation=None):
    s = votes.sum(dim=-3) / (votes.shape[-3] - 1)
    return Capsules(s, s, s.mean(dim=-1))


def divides_by_a_square(votes, activation=None):
    s = votes.sum(dim=-3)
    inverse = s / torch.where(s == 0, torch.ones_like(s), s.square())
    return Capsules(s, inverse, s.mean(dim=-1))


def detaches_everything(votes, activation=None):
    return fm_agreement(votes.detach())


def widens_half_precision(votes, activation=None):
    return as_capsules(votes.mean(dim=-3).to(torch.float32 if votes.dtype == torch.bfloat16 else votes.dtype))


def returns_a_pair(votes, activation=None):
    s = votes.mean(dim=-3)
    return s, s.norm(dim=-1)


def keeps_an_axis(votes, activation=None):
    s = votes.mean(dim=-3)
    return Capsules(s, s, s.norm(dim=-1, keepdim=True))


def returns_float32(votes, activation=None):
    return as_capsules(votes.mean(dim=-3).float())


@pytest.mark.parametrize(
    ("check", "wrong", "words"),
    [
        (testing.assert_capsules, returns_a_pair, "returns Capsules, got tuple"),
        (testing.assert_capsules, keeps_an_axis, r"activation .* is \(2, 3, 1\), not \(2, 3\)"),
        (testing.assert_capsules, returns_float32, "s of torch.float64 votes is torch.float32"),
        (testing.assert_capsules, widens_half_precision, "s of torch.bfloat16 votes is torch.float32"),
        (testing.assert_permutation_invariant, first_child_counts_double, "make other parents"),
        (testing.assert_permutation_invariant, children_count_by_their_place, "make other parents"),
        (testing.assert_free_leading_dims, images_share_a_mean, "differs from itself alone"),
        (testing.assert_gradients, stops_a_gradient, "differ from finite differences"),
        (testing.assert_finite, divides_by_a_length, "votes all zero"),
        (testing.assert_gradients, ignores_the_gradient_of_activations, "differ from finite differences"),
        (testing.assert_gradients, IgnoresTheGradientOfItsParameter(), "differ from finite differences"),
        (testing.assert_finite, overflows, "1e15"),
        (testing.assert_finite, has_no_gradient_at_zero, "gradient of activation is not finite for votes all zero"),
        (testing.assert_finite, computes_half_precision_in_float16, "1e15, children all active, torch.bfloat16"),
        (testing.assert_finite, divides_by_the_other_children, "one child"),
        (testing.assert_finite, divides_by_a_square, "1e-20"),
        (testing.assert_finite, detaches_everything, "s has no gradient"),
    ],
)
def test_each_check_notices_what_it_is_for(check, wrong, words):
    with pytest.raises(AssertionError, match=words):
        check(wrong, J)
    with pytest.raises(AssertionError):
        testing.check_routing(wrong, J)
    check(right, J)


def test_a_routing_that_wants_exactly_one_leading_axis_is_noticed():
    with pytest.raises(ValueError, match="values to unpack"):
        testing.assert_free_leading_dims(wants_a_batch, J)


def test_the_oracle_notices_the_wrong_axis_of_the_softmax():
    def oracle(votes, activation):
        parts = loops.dynamic_routing(votes.tolist(), 3)
        return Capsules(*(torch.tensor(part, dtype=torch.float64) for part in parts))

    testing.assert_matches_oracle(lambda votes, activation: dynamic_routing(votes), oracle, J)
    with pytest.raises(AssertionError, match="differs from its oracle, in s"):
        testing.assert_matches_oracle(softmax_over_children, oracle, J)
    with pytest.raises(AssertionError, match="differs from its oracle, in s"):
        testing.assert_matches_oracle(lambda votes, activation: dynamic_routing(votes, 2), oracle, J)


def test_an_oracle_must_return_capsules():
    with pytest.raises(AssertionError, match="an oracle returns Capsules, got tuple"):
        testing.assert_matches_oracle(right, returns_a_pair, J)


def test_random_votes_are_the_same_for_the_same_seed():
    one, other = (testing.random_votes(2, out_capsules=J, seed=5)[0] for _ in range(2))
    assert (one == other).all()
    assert (one != testing.random_votes(2, out_capsules=J, seed=6)[0]).any()


def test_a_function_passes_as_well_as_a_module():
    testing.check_routing(right, J)


def test_shares_that_do_not_add_up_are_noticed():
    class Miscounted(FMAgreement):
        def evidence(self, votes, activation=None):
            evidence = super().evidence(votes, activation)
            return evidence._replace(share=evidence.share * 2)

    testing.assert_evidence(FMAgreement(3), 3)
    with pytest.raises(AssertionError, match="Miscounted: shares of the children differ from the activation"):
        testing.check_routing(Miscounted(3), 3)


def test_a_shortcut_that_is_another_algorithm_is_noticed():
    class Unhalved(FMAgreement):
        def agree_on_sums(self, total, squares, children):
            return super().agree_on_sums(2 * total, squares, children)

    testing.assert_shortcut(FMAgreement(3), 3)
    with pytest.raises(AssertionError, match=r"Unhalved: needs = VoteNeeds\.SUMS_OF_UNIT_VOTES gives other parents"):
        testing.check_routing(Unhalved(3), 3)


def squashed(name, **members):
    """A routing whose activations lie in 0..1."""

    def agree(self, votes, activation):
        return Capsules(*fm_agreement(votes, activation="squash"))

    return type(name, (Routing,), {"agree": agree, **members})


def test_a_bound_that_the_class_does_not_declare_is_a_warning():
    with pytest.warns(UserWarning, match=r"Silent: all activations lie in 0..1, and its property bounded is False"):
        testing.check_routing(squashed("Silent")(J), J)


def test_routings_that_declare_their_bound_or_have_none_are_not_warned_of():
    routings = [create_routing(name, J) for name in ("fm", "dynamic", "em")]
    routings += [FMAgreement(J, halve=False), FMAgreement(J, normalize=False), FMAgreement(J, activation="squash")]
    routings += [squashed("Declared", bounded=True)(J)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for routing in routings:
            testing.warn_if_bounded(routing, J)
        testing.warn_if_bounded(right, J)
