"""Every registered routing passes the same suite, and equals its loop."""

import copy
import inspect
from functools import partial

import pytest
import torch
from reference import loops
from reference.sized import sized_routing

import paircaps
from paircaps import Capsules, create_routing, list_routings, register_routing, testing
from paircaps.routing import FMAgreement

J = 3


def capsules(nested):
    return Capsules(*(torch.tensor(part, dtype=torch.float64) for part in nested))


def fm_loop(votes, activation, /, weigh=None, learn_softness=False, **options):
    weights = None if weigh is None else activation.tolist()
    return capsules(loops.fm_agreement(votes.tolist(), weights, **options))


def dynamic_loop(votes, _, iterations=3, none_of_the_above=False):
    return capsules(loops.dynamic_routing(votes.tolist(), iterations, none_of_the_above))


def em_loop(votes, activation, iterations=3, beta_u=1.5, beta_a=0.0):
    betas = [beta_u] * J, [beta_a] * J
    return capsules(loops.em_routing(votes.tolist(), activation.tolist(), *betas, iterations))


def mean_loop(votes, _):
    return capsules(loops.mean_of_votes(votes.tolist()))


def sum_loop(votes, _):
    return capsules(loops.sum_of_votes(votes.tolist()))


def self_loop(votes, activation, children):
    parents = range(votes.shape[1])  # R and b are zero at first
    weight = [[[0.0] * children.shape[1] for _ in parents] for _ in votes]
    bias = [[0.0 for _ in parents] for _ in votes]
    return capsules(loops.self_routing(votes.tolist(), activation.tolist(), children.tolist(), weight, bias))


def efficient_loop(votes, _):
    return capsules(loops.efficient_routing(votes.tolist()))


def heinsen_loop(votes, children, iterations=3, activation="probability", beta_use=0.015625, beta_ign=0.015625):
    betas = [beta_use] * J, [beta_ign] * J
    s, pose, a = capsules(loops.heinsen_routing(votes.tolist(), children.tolist(), *betas, iterations))
    return Capsules(s, pose, a.sigmoid() if activation == "probability" else a)


def attention_loop(votes, _, iterations=2, activation="logit", *, learned):
    names = "norm.weight", "norm.bias", "score.weight", "score.bias"
    gain, shift, (weight,), (bias,) = (learned[name] for name in names)
    s, pose, a = capsules(loops.attention_routing(votes.tolist(), gain, shift, weight, bias, iterations))
    return Capsules(s, pose, a.sigmoid() if activation == "probability" else a)


def vb_loop(votes, children, iterations=3, *, learned):
    _, pose, a = capsules(loops.vb_routing(votes.tolist(), children.tolist(), iterations))
    mean, variance = (torch.tensor(learned[f"pose_norm.running_{name}"]).double() for name in ("mean", "var"))
    pose = (pose - mean[:, None]) / (variance[:, None] + 1e-5).sqrt()
    names = "running_mean", "running_var", "weight", "bias"
    mean, variance, weight, bias = (torch.tensor(learned[f"activation_norm.{name}"]).double() for name in names)
    a = (a - mean) / (variance + 1e-5).sqrt() * weight + bias
    return Capsules(pose, pose, a.sigmoid())


LOOPS = {
    "attention": attention_loop,
    "fm": fm_loop,
    "dynamic": dynamic_loop,
    "efficient": efficient_loop,
    "em": em_loop,
    "heinsen": heinsen_loop,
    "mean": mean_loop,
    "self": self_loop,
    "sum": sum_loop,
    "vb": vb_loop,
}
"""A new routing is registered together with its loop here, which may ask for what the routing has learned."""


def loop_of(name, routing, **options):
    """The loop of a routing, with its options, and its parameters by name where it asks for them."""
    if "learned" in inspect.signature(LOOPS[name]).parameters:
        options["learned"] = {key: value.tolist() for key, value in routing.state_dict().items()}
    return partial(LOOPS[name], **options)


OPTIONS = [
    ("fm", {"normalize": False}),
    ("fm", {"halve": False}),
    ("fm", {"activation": "squash"}),
    ("fm", {"activation": "squash", "normalize": False}),
    ("fm", {"softness": 0.5}),
    ("fm", {"softness": 1.0, "learn_softness": True, "halve": False}),
    ("fm", {"linear": 0.5}),
    ("fm", {"linear": 1.0, "weigh": "activation", "softness": 2.0, "activation": "squash"}),
    ("fm", {"weigh": "activation"}),
    ("fm", {"scale": 3.0}),
    ("fm", {"scale": 30.0, "weigh": "activation", "activation": "squash", "halve": False}),
    ("fm", {"weigh": "activation", "normalize": False}),
    ("fm", {"weigh": "activation", "softness": 2.0, "activation": "squash"}),
    *(("dynamic", {"iterations": n}) for n in (1, 2, 5)),
    *(("dynamic", {"iterations": n, "none_of_the_above": True}) for n in (1, 3)),
    *(("em", {"iterations": n}) for n in (1, 2, 4, 5)),
    ("em", {"beta_u": 0.0, "beta_a": -1000.0}),
    *(("heinsen", {"iterations": n}) for n in (1, 2, 5)),
    ("heinsen", {"activation": "logit"}),
    ("heinsen", {"beta_use": 1.0, "beta_ign": 0.0}),
    *(("attention", {"iterations": n}) for n in (1, 3, 5)),
    ("attention", {"activation": "probability"}),
    *(("vb", {"iterations": n}) for n in (1, 2, 5)),
]


def test_the_three_routings_of_the_paper_are_registered():
    assert {"fm", "dynamic", "em"} <= set(list_routings())


@pytest.mark.parametrize("name", list_routings())
def test_every_routing_passes_the_shipped_checks(name):
    testing.check_routing(sized_routing(name, J), J)


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_every_option_passes_them_too(name, options):
    testing.check_routing(sized_routing(name, J, **options), J)


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_every_option_does_what_it_does_in_the_loop(name, options):
    routing, plain = (sized_routing(name, J, **chosen) for chosen in (options, {}))
    testing.assert_matches_oracle(routing, loop_of(name, routing, **options), J)
    with pytest.raises(AssertionError, match="differs from its oracle"):
        testing.assert_matches_oracle(plain, loop_of(name, plain, **options), J)


def test_every_routing_has_a_loop():
    assert set(LOOPS) == set(list_routings()), "write the new routing's loop and name it in LOOPS"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", list_routings())
def test_hard_inputs_are_finite_whatever_the_numbers(name, seed):
    testing.assert_finite(sized_routing(name, J), J, seed=seed)


@pytest.mark.parametrize("name", list_routings())
@pytest.mark.parametrize("children", [2, 7])
def test_every_routing_is_its_loop(name, children):
    routing = sized_routing(name, J, children=children)
    testing.assert_matches_oracle(routing, loop_of(name, routing), J, children=children)


@pytest.mark.parametrize("name", ["attention", "dynamic", "efficient", "em", "heinsen", "vb"])
def test_the_rivals_are_their_loops_for_a_single_child(name):
    routing = sized_routing(name, J, children=1)
    testing.assert_matches_oracle(routing, loop_of(name, routing), J, children=1)


def test_a_single_child_has_no_pair_to_agree_with():
    # Algorithm 1 divides by the length of s, which is zero here
    result = FMAgreement(J)(torch.randn(2, 1, J, 4))
    assert all((part == 0).all() for part in result)


@pytest.mark.parametrize("name", list_routings())
def test_vmap_over_a_batch_is_the_batch(name):
    routing = sized_routing(name, J).eval()
    inputs = testing.random_inputs(routing, 6, out_capsules=J, dtype=torch.float32)
    for one, other in zip(torch.func.vmap(routing)(*inputs), routing(*inputs), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", list_routings())
def test_gradients_of_single_images_by_vmap(name):
    routing = sized_routing(name, J).eval()
    votes, *others = testing.random_inputs(routing, 6, out_capsules=J, dtype=torch.float32)

    def loss(votes, *others):
        capsules = routing(votes, *others)
        return capsules.activation.square().sum() + capsules.s.square().sum()

    each = torch.func.vmap(torch.func.grad(loss))(votes, *others)
    leaf = votes.clone().requires_grad_()
    loss(leaf, *others).backward()
    torch.testing.assert_close(each, leaf.grad)


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "aot_eager") for name in list_routings()), ("em", "inductor")],  # machine code takes ten seconds
)
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_routing_is_the_routing(name, backend):
    routing = sized_routing(name, J)
    compiled = torch.compile(routing, fullgraph=True, backend=backend)
    votes, *others = testing.random_inputs(routing, 2, out_capsules=J, dtype=torch.float32)
    results = []
    for function in (routing, compiled):
        leaf = votes.clone().requires_grad_()
        parts = function(leaf, *others)
        sum(part.sum() for part in parts).backward()
        results.append([*parts, leaf.grad])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list_routings())
def test_copies_and_state_dicts_route_alike(name):
    routing = sized_routing(name, J)
    with torch.no_grad():
        for parameter in routing.parameters():
            parameter.normal_()
    other = sized_routing(name, J)
    other.load_state_dict(routing.state_dict())
    inputs = testing.random_inputs(routing, 2, out_capsules=J, dtype=torch.float32)
    for twin in (other, copy.deepcopy(routing)):
        for one, two in zip(twin(*inputs), routing(*inputs), strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=0)


@pytest.mark.parametrize("name", list_routings())
def test_votes_for_another_number_of_parents_are_refused(name):
    with pytest.raises(ValueError, match=r"3 parents, got votes for 4: shape \(2, 5, 4, 8\)"):
        sized_routing(name, J)(torch.randn(2, 5, 4, 8))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        ValueError, match=r"unknown routing 'fmm'; did you mean 'fm'.*attention, dynamic, .*em, fm, heinsen"
    ):
        create_routing("fmm", J)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="'fm' is already registered"):
        register_routing("fm", FMAgreement)


def test_an_empty_name_is_refused():
    with pytest.raises(TypeError, match="a routing is registered by a name and a callable, got ''"):
        register_routing("", FMAgreement)


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(TypeError, match=r"'em' has no option 'rounds'; it takes iterations, beta_u, beta_a"):
        create_routing("em", J, rounds=3)


@pytest.mark.parametrize("name", ["attention", "dynamic", "em", "heinsen", "vb"])
def test_zero_iterations_are_refused_when_the_routing_is_built(name):
    with pytest.raises(ValueError, match="iterations must be at least 1, got 0"):
        sized_routing(name, J, iterations=0)


@pytest.mark.parametrize("name", ["attention", "dynamic", "em", "heinsen", "vb"])
def test_iterations_without_end_are_refused_when_the_routing_is_built(name):
    assert sized_routing(name, J, iterations=100).iterations == 100
    with pytest.raises(ValueError, match="iterations must be from 1 to 100, got 1000000000"):
        sized_routing(name, J, iterations=10**9)


def test_no_parents_are_refused():
    with pytest.raises(ValueError, match="out_capsules must be at least 1, got 0"):
        FMAgreement(0)


def test_a_new_routing_is_known_everywhere_once_registered(monkeypatch):
    monkeypatch.setattr(paircaps.routing._ROUTINGS, "_factories", {**paircaps.routing._ROUTINGS._factories})

    class MeanVote(paircaps.Routing):
        def agree(self, votes, activation):
            mean = votes.mean(dim=-3)
            return Capsules(mean, mean, mean.norm(dim=-1))

    register_routing("of-a-test", MeanVote)
    assert "of-a-test" in list_routings()
    assert isinstance(paircaps.CapsuleLayer(5, J, routing="of-a-test").routing, MeanVote)
    model = paircaps.create_model("resnet-caps-small", routing="of-a-test")
    assert model(torch.randn(2, 1, 28, 28)).activation.shape == (2, 10)


def test_a_routing_that_returns_no_capsules_is_refused():
    class Forgetful(paircaps.Routing):
        def agree(self, votes, activation):
            return votes.sum(dim=-3)

    with pytest.raises(TypeError, match=r"Forgetful.agree must return Capsules, got Tensor"):
        Forgetful(J)(torch.randn(2, 5, J, 4))


def test_options_show_in_the_printed_module():
    assert "iterations=2" in repr(create_routing("dynamic", J, iterations=2))
    assert "iterations=2" in repr(create_routing("em", J, iterations=2))
    assert "normalize=False" in repr(create_routing("fm", J, normalize=False))


def test_a_routing_with_a_learned_softness_can_be_printed():
    """Its value has a gradient, which a plain float() warns about."""
    assert "softness=4, learned" in str(FMAgreement(J, softness=4.0, learn_softness=True))
    assert "softness" not in str(FMAgreement(J))
