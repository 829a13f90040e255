import math

import pytest
import torch

from paircaps.training.assemble import build_objective, memory_format, training_loader
from paircaps.training.datasets import load_datasets
from paircaps.training.distributed import Processes
from paircaps.training.optimiser import create_optimiser, kernels_of
from paircaps.training.recipes import load_recipe
from paircaps.training.state import Counters, State, create_average
from paircaps.training.step import FIRST_SCALE, LEAST_SCALE, NotFinite, Stepper

CPU = torch.device("cpu")


def parts(**overrides):
    """A stepper on glyphs, its state and its first batch."""
    tree = {
        "data": {"limit": 80, "validation": 0.0},
        "train": {"batch_size": 16, "epochs": 1, "precision": "fp32"},
        "optimiser": {"lr": 1.0},  # so that the share of the rate that a step is given is the rate
        "schedule": {"name": "constant"},
    }
    for section, values in overrides.items():
        tree[section] = {**tree.get(section, {}), **values}
    recipe = load_recipe("glyphs", tree)
    datasets = load_datasets(recipe.data)
    objective = build_objective(recipe, datasets, CPU)
    network = objective.network
    average = create_average(network, recipe.train.ema) if recipe.train.ema else None
    state = State(network, create_optimiser(recipe.optimiser, network), average, Counters())
    stepper = Stepper(recipe, objective, state, Processes(), CPU, memory_format(recipe, objective))
    return stepper, state, training_loader(recipe, datasets, Processes()).batch(0, 0)


def weights(state):
    return {name: value.detach().clone() for name, value in state.network.named_parameters()}


def averages(state):
    return state.average.module.state_dict()


def test_a_batch_in_parts_is_the_batch():
    """With a network without batch norm, in which images do not affect each other."""
    light = {"model": {"name": "capsnet-light", "options": {"filters": 8, "groups": 2}}}
    whole, state, batch = parts(**light, optimiser={"name": "sgd"})
    cut, cut_state, _ = parts(**light, optimiser={"name": "sgd"}, train={"accumulate": 4})
    sums, gradient, _ = whole(batch, 16, 0.1)
    cut_sums, cut_gradient, _ = cut(batch, 16, 0.1)
    assert cut_sums.loss == pytest.approx(sums.loss, rel=1e-5)
    assert cut_sums.right == sums.right
    assert cut_gradient == pytest.approx(gradient, rel=1e-4)
    for name, value in weights(state).items():
        torch.testing.assert_close(weights(cut_state)[name], value, rtol=1e-4, atol=1e-6)


def test_a_step_is_what_the_optimiser_makes_of_the_mean_loss():
    stepper, state, batch = parts(optimiser={"name": "sgd", "momentum": 0.0})
    before = weights(state)
    stepper.objective.train()
    loss = stepper.objective(batch.images, batch.labels, batch.images).loss / 16
    gradients = torch.autograd.grad(loss, list(state.network.parameters()))
    sums, length, _ = stepper(batch, 16, 0.5)
    assert sums.loss / sums.images == pytest.approx(loss.item(), rel=1e-5)
    assert length == pytest.approx(math.sqrt(sum(g.square().sum().item() for g in gradients)), rel=1e-4)
    for (name, value), gradient in zip(weights(state).items(), gradients, strict=True):
        torch.testing.assert_close(value, before[name] - 0.5 * gradient, rtol=1e-3, atol=1e-5)


def test_a_long_gradient_is_shortened():
    stepper, state, batch = parts(optimiser={"name": "sgd", "momentum": 0.0, "clip_norm": 0.01})
    before = weights(state)
    _, length, _ = stepper(batch, 16, 1.0)
    assert length > 0.01
    moved = math.sqrt(sum((weights(state)[name] - value).square().sum().item() for name, value in before.items()))
    assert moved == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_nothing_changes_when_something_is_not_finite(where):
    stepper, state, batch = parts(optimiser={"name": "adam"})
    stepper(batch, 16, 1e-3)
    if where == "gradient":
        next(iter(state.network.parameters())).register_hook(lambda gradient: gradient * math.nan)
    else:
        with torch.no_grad():
            state.network.model.primary.conv.weight[0] = math.inf
    before = weights(state)
    with pytest.raises(NotFinite, match=f"the {where} is not finite"):
        stepper(batch, 16, 1e-3)
    for name, value in weights(state).items():
        assert (
            torch.equal(
                value,
                before[name],
            )
            or name == "model.primary.conv.weight"
        )


def test_fp16_lowers_its_scale_in_place_of_a_step_that_overflows():
    stepper, state, batch = parts(train={"precision": "fp16", "ema": 0.5})
    assert state.counters.scale == FIRST_SCALE
    average = {name: value.clone() for name, value in averages(state).items()}
    hook = next(iter(state.network.parameters())).register_hook(lambda gradient: gradient * math.inf)
    before = weights(state)
    stepper(batch, 16, 1e-3)
    assert state.counters.scale == FIRST_SCALE / 2
    assert all(torch.equal(value, before[name]) for name, value in weights(state).items())
    assert all(torch.equal(value, average[name]) for name, value in averages(state).items())
    hook.remove()
    stepper(batch, 16, 1e-3)
    assert state.counters.scale == FIRST_SCALE / 2
    assert not all(torch.equal(value, before[name]) for name, value in weights(state).items())


def test_fp16_doubles_its_scale_after_steps_without_overflow_up_to_the_first_scale(monkeypatch):
    monkeypatch.setattr("paircaps.training.step.GROW_AFTER", 2)
    stepper, state, batch = parts(train={"precision": "fp16"})
    hook = next(iter(state.network.parameters())).register_hook(lambda gradient: gradient * math.inf)
    stepper(batch, 16, 1e-3)
    hook.remove()
    scales = [(stepper(batch, 16, 1e-3), state.counters.scale, state.counters.good_steps)[1:] for _ in range(5)]
    half = FIRST_SCALE / 2
    assert scales == [(half, 1), (FIRST_SCALE, 0), (FIRST_SCALE, 1), (FIRST_SCALE, 0), (FIRST_SCALE, 1)]


def test_fp16_goes_on_with_the_scale_of_the_checkpoint():
    stepper, state, batch = parts(train={"precision": "fp16"})
    state.counters = Counters(step=7, scale=1024.0, good_steps=3)
    again = Stepper(stepper.recipe, stepper.objective, state, Processes(), CPU, stepper.format)
    assert again.scaler.get_scale() == 1024.0
    again(batch, 16, 1e-3)
    assert (state.counters.scale, state.counters.good_steps) == (1024.0, 4)


def test_fp16_gives_up_at_the_lowest_scale():
    stepper, state, batch = parts(train={"precision": "fp16"})
    next(iter(state.network.parameters())).register_hook(lambda gradient: gradient * math.inf)
    stepper.scaler.load_state_dict({**stepper.scaler.state_dict(), "scale": LEAST_SCALE * 2})
    stepper(batch, 16, 1e-3)
    assert state.counters.scale == LEAST_SCALE
    before = weights(state)
    with pytest.raises(NotFinite, match="the gradient is not finite"):
        stepper(batch, 16, 1e-3)
    assert all(torch.equal(value, before[name]) for name, value in weights(state).items())


def test_the_length_of_a_gradient_does_not_depend_on_the_scale():
    few, few_state, batch = parts(train={"precision": "fp16"})
    few.scaler.load_state_dict({**few.scaler.state_dict(), "scale": 256.0})
    many, many_state, _ = parts(train={"precision": "fp16"})
    assert few(batch, 16, 1e-3)[1] == pytest.approx(many(batch, 16, 1e-3)[1], rel=1e-2)
    assert (few_state.counters.scale, many_state.counters.scale) == (256.0, FIRST_SCALE)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_near_to_full(precision):
    full, _, batch = parts()
    half, _, _ = parts(train={"precision": precision})
    assert half(batch, 16, 1e-3)[0].loss == pytest.approx(full(batch, 16, 1e-3)[0].loss, rel=0.03)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_is_the_same_to_float_error():
    plain, _, batch = parts()
    compiled, _, _ = parts(train={"compile": True})
    assert compiled(batch, 16, 1e-3)[0].loss == pytest.approx(plain(batch, 16, 1e-3)[0].loss, rel=1e-4)


FAST = {"model": {"name": "fast-caps-tiny", "options": {"widths": [8, 8, 8]}}}
MUON = {"name": "muon", "lr": 0.1, "rest_lr": 0.01, "nesterov": True, "rescale": True, "muon_on": "matrices"}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_muon_takes_steps_in_every_precision(precision):
    stepper, state, batch = parts(**FAST, optimiser=MUON, train={"precision": precision})
    before = weights(state)
    for _ in range(2):
        assert math.isfinite(stepper(batch, 16, 0.5)[1])
    for name, value in weights(state).items():
        assert value.isfinite().all(), name
        assert not torch.equal(value, before[name]), name
    assert {group["lr"] for group in state.optimiser.param_groups} == {0.05, 0.005}


def test_muon_and_its_rest_go_on_from_what_was_saved():
    stepper, state, batch = parts(**FAST, optimiser=MUON)
    other, other_state, _ = parts(**FAST, optimiser=MUON, train={"seed": 1})
    for share in (1.0, 0.5):
        stepper(batch, 16, share)
    other_state.restore(state.tensors(), Counters(step=2))
    for which in (stepper, other):
        which(batch, 16, 0.25)
    assert all(torch.equal(value, weights(state)[name]) for name, value in weights(other_state).items())


def test_the_average_follows_slowly():
    stepper, state, batch = parts(train={"ema": 0.75}, optimiser={"name": "sgd"})
    before = {name: value.clone() for name, value in state.network.state_dict().items()}
    stepper(batch, 16, 0.5)
    now = state.network.state_dict()
    for name, value in averages(state).items():
        expected = 0.75 * before[name] + 0.25 * now[name] if value.is_floating_point() else now[name]
        torch.testing.assert_close(value, expected)
    assert all(torch.equal(value, averages(state)[name]) for name, value in state.evaluated_weights().items())


def test_a_signal_is_handed_on():
    stepper, _, batch = parts()
    assert stepper(batch, 16, 1e-3, 0)[2] == 0
    assert stepper(batch, 16, 1e-3, 15)[2] == 15


def test_kernels_decay_and_nothing_else():
    stepper, state, _ = parts(model={"routing": "em"}, optimiser={"weight_decay": 0.1}, loss={"decoder": "deconv"})
    decaying = {id(p) for p in kernels_of(stepper.objective)}
    names = {name for name, p in state.network.named_parameters() if id(p) in decaying}
    assert "model.layers.0.votes.weight" in names
    assert "model.primary.conv.weight" in names
    assert not any("beta" in name or "norm" in name or "bias" in name for name in names)
    groups = {group["weight_decay"]: len(group["params"]) for group in state.optimiser.param_groups}
    assert groups == {0.1: len(names), 0.0: len(list(state.network.parameters())) - len(names)}


def test_vote_norm_of_single_votes_does_not_decay():
    """Batch norm of every single vote has as many weights as there are votes; still they are no kernel."""
    stepper, state, _ = parts(model={"options": {"vote_norm": "vote", "primary_norm": "capsule"}})
    decaying = {id(p) for p in kernels_of(stepper.objective)}
    assert not any(id(p) in decaying for name, p in state.network.named_parameters() if "norm" in name)


def test_narrow_networks_keep_off_channels_last():
    """A strided 1×1 convolution of fewer than 16 channels in that format corrupts memory in torch 2.13 on CPUs."""
    for widths in ([4, 16, 16], [8, 16, 16], [16, 12, 16]):  # 8 and 12 where there are 3, 5, 6 or 7 threads
        narrow, _, _ = parts(model={"options": {"widths": widths}})
        assert narrow.format == torch.contiguous_format
    wide, _, _ = parts(model={"options": {"widths": [16, 16, 16]}})
    assert wide.format == torch.channels_last
