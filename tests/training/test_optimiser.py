"""Muon against torch's own and against plain singular values, and which weights get which optimiser, decay and rate."""

import copy
import math

import pytest
import torch
from torch import nn

from paircaps import CapsuleLayer, create_model
from paircaps.errors import RecipeError
from paircaps.training.optimiser import HIGHEST_RATE, Combined, Muon, create_optimiser, orthogonalised, set_rates
from paircaps.training.recipe import Optimiser


def moved_by(make, start, gradients):
    """A weight after steps with given gradients; ``make`` builds the optimiser of a list of parameters."""
    weight = nn.Parameter(start.clone())
    optimiser = make([weight])
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimiser.step()
    return weight.detach()


def network(**options):
    sizes = {"widths": (8, 8, 8), "kinds": 2, "hidden_capsules": (4,), "image_size": 9, **options}
    return create_model("fast-caps", **sizes)


def names_of(module, groups):
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return {names[id(parameter)] for group in groups for parameter in group["params"]}


def with_random_gradients(module):
    for parameter in module.parameters():
        parameter.grad = torch.randn_like(parameter)
    return module


# --- Muon ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 6), (5, 12), (12, 5)], ids=str)
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_muon_on_a_matrix_is_that_of_torch(shape, nesterov, weight_decay):
    options = {"lr": 0.05, "momentum": 0.8, "nesterov": nesterov, "weight_decay": weight_decay}
    start, gradients = torch.randn(shape), torch.randn(4, *shape)
    ours = moved_by(lambda weights: Muon(weights, **options), start, gradients)
    theirs = moved_by(lambda weights: torch.optim.Muon(weights, ns_steps=5, **options), start, gradients)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0.01)  # both orthogonalise in bfloat16
    assert (ours - start).abs().max() > 0.05


@pytest.mark.parametrize("rescale", [True, False])
def test_filters_are_the_matrix_of_output_channels_and_all_else(rescale):
    filters, gradients = torch.randn(6, 4, 3, 3), torch.randn(3, 6, 4, 3, 3)

    def muon(weights):
        return Muon(weights, 0.1, rescale=rescale, weight_decay=0.1)

    matrix = moved_by(muon, filters.view(6, 36), gradients.view(3, 6, 36))
    torch.testing.assert_close(moved_by(muon, filters, gradients).view(6, 36), matrix)
    last = moved_by(muon, filters.to(memory_format=torch.channels_last), gradients)
    torch.testing.assert_close(last.reshape(6, 36), matrix)


@pytest.mark.parametrize("rescale", [True, False])
@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3)], ids=str)
def test_each_matrix_of_a_stack_moves_as_it_does_alone(shape, rescale):
    start, gradients = torch.randn(2, 5, *shape), torch.randn(3, 2, 5, *shape)
    gradients *= torch.logspace(-3, 3, 10).view(2, 5, 1, 1)

    def muon(weights, stacked):
        return Muon([{"params": weights, "stacked": stacked}], 0.1, rescale=rescale, weight_decay=0.1)

    stack = moved_by(lambda weights: muon(weights, True), start, gradients)
    for row in range(2):
        for column in range(5):
            alone = moved_by(lambda weights: muon(weights, False), start[row, column], gradients[:, row, column])
            torch.testing.assert_close(stack[row, column], alone, rtol=0, atol=0.005)


@pytest.mark.parametrize("shape", [(16, 16), (10, 40), (40, 10), (3, 20, 8), (2, 3, 4, 4)], ids=str)
def test_singular_values_come_near_one_and_singular_vectors_stay(shape):
    u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    values = torch.linspace(0.2, 1.0, u.shape[-1])
    found = orthogonalised(100 * u * values @ v, 5).float()
    inner = u.mT @ found @ v.mT  # diagonal where the singular vectors are the same
    between = inner - torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1))
    assert between.abs().max() < 0.1
    singular = torch.linalg.svdvals(found)
    assert singular.min() > 0.6
    assert singular.max() < 1.3


def test_every_iteration_is_the_polynomial_of_the_singular_values():
    u, _, v = torch.linalg.svd(torch.randn(6, 9), full_matrices=False)
    values = torch.linspace(0.1, 1.0, 6)
    expected = values / values.norm()
    for iterations in range(4):
        found = (u.mT @ orthogonalised(u * values @ v, iterations).float() @ v.mT).diagonal()
        torch.testing.assert_close(found, expected, rtol=0, atol=0.05)
        expected = 3.4445 * expected - 4.7750 * expected**3 + 2.0315 * expected**5


def test_a_gradient_of_zeros_moves_nothing():
    start = torch.randn(4, 6)
    assert torch.equal(moved_by(Muon, start, torch.zeros(2, 4, 6)), start)


@pytest.mark.parametrize("rows", [4, 9])
def test_rescaled_filters_have_the_norm_of_the_root_of_their_number_before_the_update(rows):
    start, gradient = 7 * torch.randn(rows, 2, 3, 3), torch.randn(rows, 2, 3, 3)
    found = moved_by(
        lambda weights: Muon(weights, 0.1, momentum=0.0, nesterov=False, rescale=True, weight_decay=0.5),
        start,
        [gradient],
    )
    scaled = start * math.sqrt(rows) / start.square().sum().sqrt()
    update = orthogonalised(gradient.view(rows, 18), 5).float().view_as(start)
    torch.testing.assert_close(found, scaled * (1 - 0.1 * 0.5) - 0.1 * update)


def test_momentum_is_a_mean_of_gradients_with_or_without_nesterov():
    start, gradients = torch.randn(5, 5), torch.randn(3, 5, 5)
    for nesterov in (True, False):
        found = moved_by(lambda weights, on=nesterov: Muon(weights, 0.1, momentum=0.7, nesterov=on), start, gradients)
        expected, mean = start.clone(), torch.zeros(5, 5)
        for gradient in gradients:
            mean = 0.7 * mean + 0.3 * gradient
            update = 0.3 * gradient + 0.7 * mean if nesterov else mean
            expected -= 0.1 * orthogonalised(update, 5).float()
        torch.testing.assert_close(found, expected, rtol=0, atol=0.005)


def test_parameters_without_a_gradient_stay():
    weight, other = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(3, 3))
    before, weight.grad = other.detach().clone(), torch.randn(3, 3)
    Muon([weight, other], 0.1, weight_decay=0.5, rescale=True).step()
    assert torch.equal(other, before)


# --- several optimisers as one ---------------------------------------------------------------------------------------


def pair():
    """A matrix and a vector with gradients, and the two optimisers of them as one."""
    matrix, vector = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(5))
    parts = Muon([matrix], 0.1), torch.optim.Adam([vector], 0.01)
    for parameter in (matrix, vector):
        parameter.grad = torch.randn_like(parameter)
    return matrix, vector, Combined(*parts)


def test_a_combined_step_is_a_step_of_each():
    matrix, vector, both = pair()
    expected = [
        moved_by(lambda weights: Muon(weights, 0.1), matrix.detach(), [matrix.grad] * 3),
        moved_by(lambda weights: torch.optim.Adam(weights, 0.01), vector.detach(), [vector.grad] * 3),
    ]
    for _ in range(3):
        both.step()
    assert torch.equal(matrix, expected[0])
    assert torch.equal(vector, expected[1])


def test_groups_and_states_of_combined_optimisers_are_their_own():
    matrix, vector, both = pair()
    both.step()
    assert set(both.state[matrix]) == {"momentum_buffer"}
    assert set(both.state[vector]) == {"step", "exp_avg", "exp_avg_sq"}
    assert all(part.state is both.state for part in both.optimisers)
    before = matrix.detach().clone(), vector.detach().clone()
    for group in both.param_groups:
        group["lr"] = 0.0
    both.step()
    assert torch.equal(matrix, before[0])
    assert torch.equal(vector, before[1])


def test_a_state_put_into_combined_optimisers_counts():
    matrix, vector, both = pair()
    both.step()
    state = {parameter: copy.deepcopy(both.state[parameter]) for parameter in (matrix, vector)}
    start = matrix.detach().clone(), vector.detach().clone()
    both.step()
    expected = matrix.detach().clone(), vector.detach().clone()
    other = Combined(Muon([matrix], 0.1), torch.optim.Adam([vector], 0.01))
    with torch.no_grad():
        for parameter, value in zip((matrix, vector), start, strict=True):
            parameter.copy_(value)
            other.state[parameter] = state[parameter]
    other.step()
    assert torch.equal(matrix, expected[0])
    assert torch.equal(vector, expected[1])


def test_combined_optimisers_forget_all_gradients():
    matrix, vector, both = pair()
    both.zero_grad()
    assert matrix.grad is None
    assert vector.grad is None


# --- which weights ---------------------------------------------------------------------------------------------------


FILTERS = {
    "backbone.groups.0.0.weight",
    "backbone.groups.0.3.weight",
    "backbone.groups.1.0.weight",
    "backbone.groups.1.3.weight",
    "backbone.groups.2.0.weight",
    "primary.conv.weight",
}
VOTES = {"layers.0.votes.weight", "layers.1.votes.weight"}


@pytest.mark.parametrize(("muon_on", "taken"), [("filters", FILTERS), ("matrices", FILTERS | VOTES)])
def test_muon_takes_filters_or_all_matrices_and_leaves_the_rest(muon_on, taken):
    module = network()
    muon, rest = create_optimiser(Optimiser("muon", muon_on=muon_on, rest="adamw"), module).optimisers
    assert isinstance(muon, Muon)
    assert isinstance(rest, torch.optim.AdamW)
    assert names_of(module, muon.param_groups) == taken
    assert names_of(module, rest.param_groups) == {name for name, _ in module.named_parameters()} - taken


def test_matrices_are_also_those_of_linear_layers():
    module = create_model("fast-pool", image_size=9)
    muon, _ = create_optimiser(Optimiser("muon", muon_on="matrices"), module).optimisers
    assert "classify.weight" in names_of(module, muon.param_groups)
    muon, rest = create_optimiser(Optimiser("muon"), module).optimisers
    assert "classify.weight" in names_of(module, rest.param_groups)
    assert not any(group["stacked"] for group in muon.param_groups)


def test_vote_weights_are_stacks_of_matrices_and_nothing_else_is():
    module = network()
    muon, _ = create_optimiser(Optimiser("muon", muon_on="matrices"), module).optimisers
    assert names_of(module, [group for group in muon.param_groups if group["stacked"]]) == VOTES


def test_muon_moves_each_vote_matrix_by_an_orthogonal_one():
    module = with_random_gradients(network())
    before = module.layers[1].votes.weight.detach().clone()
    optimiser = create_optimiser(Optimiser("muon", lr=0.5, muon_on="matrices"), module)
    set_rates(optimiser, 1.0)
    optimiser.step()
    singular = torch.linalg.svdvals((before - module.layers[1].votes.weight.detach()) / 0.5)
    assert singular[..., :12].min() > 0.5  # the smallest of a random matrix may be near zero
    assert singular.max() < 1.3


def test_without_other_weights_muon_stands_alone():
    assert isinstance(create_optimiser(Optimiser("muon"), nn.Conv2d(2, 3, 3, bias=False)), Muon)


@pytest.mark.parametrize(
    ("rest", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_options_reach_both_optimisers(rest, kind):
    settings = Optimiser(
        "muon", 0.3, momentum=0.7, nesterov=True, rescale=True, muon_iterations=2, rest=rest, rest_lr=0.02, beta1=0.8
    )
    muon, other = create_optimiser(settings, network()).optimisers
    expected = {"momentum": 0.7, "nesterov": True, "rescale": True, "iterations": 2, HIGHEST_RATE: 0.3}
    for group in muon.param_groups:
        assert {key: group[key] for key in expected} == expected
    assert type(other) is kind
    for group in other.param_groups:
        assert group[HIGHEST_RATE] == 0.02
        if rest == "sgd":
            assert (group["momentum"], group["nesterov"]) == (0.7, False)
        else:
            assert (group["betas"], group["eps"]) == ((0.8, 0.999), 1e-7)


@pytest.mark.parametrize("settings", [Optimiser(weight_decay=0.1), Optimiser("muon", weight_decay=0.1)])
def test_filters_and_votes_decay_and_norms_and_biases_do_not(settings):
    module = network()
    groups = create_optimiser(settings, module).param_groups
    assert {group["weight_decay"] for group in groups} == {0.1, 0.0}
    assert names_of(module, [group for group in groups if group["weight_decay"]]) == FILTERS | VOTES


@pytest.mark.parametrize(("routing", "kernels"), [("efficient", set()), ("self", {"routing.weight"})])
def test_of_a_routing_matrices_of_each_child_decay_and_vectors_do_not(routing, kernels):
    layer = CapsuleLayer(5, 3, routing=routing)
    groups = create_optimiser(Optimiser("adam", weight_decay=0.1), layer).param_groups
    assert names_of(layer, [group for group in groups if group["weight_decay"]]) == {"votes.weight"} | kernels


def test_filters_of_the_whitening_stem_are_not_trained():
    module = with_random_gradients(network())
    assert "backbone.stem.weight" not in dict(module.named_parameters())
    before = module.backbone.stem.weight.clone()
    optimiser = create_optimiser(Optimiser("muon", muon_on="matrices", rescale=True), module)
    set_rates(optimiser, 1.0)
    optimiser.step()
    assert torch.equal(module.backbone.stem.weight, before)
    trained = network(stem="conv")
    muon, _ = create_optimiser(Optimiser("muon"), trained).optimisers
    assert "backbone.stem.conv.weight" in names_of(trained, muon.param_groups)


@pytest.mark.parametrize("settings", [Optimiser("sgd"), Optimiser("muon", muon_on="matrices")])
def test_frozen_parameters_are_not_given_to_the_optimiser(settings):
    module = network()
    frozen = {"primary.conv.weight", "backbone.stem.bias"}
    for name in frozen:
        module.get_parameter(name).requires_grad_(False)
    found = names_of(module, create_optimiser(settings, module).param_groups)
    assert found == {name for name, _ in module.named_parameters()} - frozen


# --- rates -----------------------------------------------------------------------------------------------------------


def highest_rates(module, settings):
    return {
        name: group[HIGHEST_RATE]
        for group in create_optimiser(settings, module).param_groups
        for name in names_of(module, [group])
    }


def test_the_last_pattern_that_matches_counts():
    rates = {"layers.*": 3.0, "*.weight": 2.0, "layers.1.*": 5.0}
    found = highest_rates(network(), Optimiser("adam", 0.1, rates=rates))
    assert found["backbone.stem.bias"] == pytest.approx(0.1)
    assert found["layers.0.norm.bias"] == pytest.approx(0.3)
    assert found["layers.0.votes.weight"] == found["primary.conv.weight"] == pytest.approx(0.2)
    assert found["layers.1.votes.weight"] == found["layers.1.norm.bias"] == pytest.approx(0.5)


def test_rates_are_factors_of_the_rate_of_each_optimiser():
    rates = {"primary.*": 2.0}
    found = highest_rates(network(), Optimiser("muon", 0.1, rest_lr=0.01, rates=rates))
    assert found["primary.conv.weight"] == pytest.approx(0.2)
    assert found["primary.norm.weight"] == pytest.approx(0.02)
    assert found["backbone.groups.0.0.weight"] == pytest.approx(0.1)
    assert found["layers.0.votes.weight"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "sgd", "weight_decay": 0.1},
        {"name": "adam", "weight_decay": 0.1},
        {"name": "adamw", "weight_decay": 0.1},
        {"name": "muon", "weight_decay": 0.1},
        {"name": "muon", "weight_decay": 0.1, "rescale": True, "muon_on": "matrices"},
    ],
    ids=str,
)
def test_a_rate_of_zero_freezes_a_weight(settings):
    frozen = ("primary.conv.weight", "primary.norm.bias", "layers.0.votes.weight")
    module = network()
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    optimiser = create_optimiser(Optimiser(**settings, lr=0.1, rates=dict.fromkeys(frozen, 0.0)), module)
    for _ in range(2):
        set_rates(optimiser, 1.0)
        with_random_gradients(module)
        optimiser.step()
    assert {name for name, value in module.named_parameters() if torch.equal(value, before[name])} == set(frozen)
    assert {name for name, value in module.named_parameters() if not value.requires_grad} == set(frozen)
    with pytest.raises(RecipeError, match="all weights are frozen"):
        create_optimiser(Optimiser(**settings, rates={"*": 0.0}), network())


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_a_pattern_that_matches_nothing_is_named(name):
    with pytest.raises(RecipeError, match=r"optimiser\.rates: 'decoder\.\*' matches no weight .* names are backbone\."):
        create_optimiser(Optimiser(name, rates={"*.weight": 2.0, "decoder.*": 0.5}), network())


def test_the_stems_filters_cannot_be_given_a_rate():
    with pytest.raises(RecipeError, match=r"'backbone\.stem\.weight' matches no weight that is trained"):
        create_optimiser(Optimiser(rates={"backbone.stem.weight": 2.0}), network())


@pytest.mark.parametrize("share", [1.0, 0.25, 0.0])
def test_every_group_gets_its_share_of_its_highest_rate(share):
    optimiser = create_optimiser(Optimiser("muon", 0.4, rest_lr=0.02, rates={"layers.*": 0.5}), network())
    set_rates(optimiser, 0.7)
    set_rates(optimiser, share)
    assert {group[HIGHEST_RATE] for group in optimiser.param_groups} == {0.4, 0.02, 0.01}
    for group in optimiser.param_groups:
        assert group["lr"] == group[HIGHEST_RATE] * share


@pytest.mark.parametrize("muon_on", ["filters", "matrices"])
def test_muon_without_a_filter_that_is_trained_leaves_all_to_the_rest(muon_on):
    module = network()
    kept = [name for name, parameter in module.named_parameters() if parameter.dim() == 1]
    rates = {"*": 0.0} | dict.fromkeys(kept, 1.0)
    optimiser = create_optimiser(Optimiser("muon", muon_on=muon_on, rest="adamw", rest_lr=0.5, rates=rates), module)
    assert isinstance(optimiser, torch.optim.AdamW)
    assert names_of(module, optimiser.param_groups) == set(kept)
    assert {group[HIGHEST_RATE] for group in optimiser.param_groups} == {0.5}
