"""The convolutions of a step alone are those of the step: as many, of the same shapes, precision and gradients."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from paircaps.bench.convolutions import convolutions_of
from paircaps.bench.train_step import train_step
from paircaps.models import WhiteningStem
from paircaps.training.assemble import build_objective, training_loader
from paircaps.training.datasets import load_datasets
from paircaps.training.distributed import Processes
from paircaps.training.recipes import load_recipe


def step_of(model, precision, **loss):
    overrides = {
        "model": {"name": model},
        "data": {"limit": 8, "validation": 0.0},
        "train": {"batch_size": 4, "precision": precision},
        "loss": loss,
    }
    recipe = load_recipe("glyphs", overrides)
    datasets = load_datasets(recipe.data)
    batch = training_loader(recipe, datasets, Processes()).batch(0, 0)
    return train_step(recipe, build_objective(recipe, datasets, torch.device("cpu")), batch)


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
@pytest.mark.parametrize("model", ["fast-caps-tiny", "resnet-caps-small", "capsnet-light"])
def test_all_convolutions_of_the_step_in_its_precision_and_layout(model, precision, dtype):
    step = step_of(model, precision, decoder="deconv")
    calls = convolutions_of(step).calls
    kinds = (nn.Conv2d, nn.ConvTranspose2d, WhiteningStem)
    assert len(calls) == sum(isinstance(part, kinds) for part in step.objective.modules())
    assert sum(isinstance(call.module, nn.ConvTranspose2d) for call in calls) == 3
    for call in calls:
        assert call.input.dtype == call.gradient.dtype == dtype
        assert all(parameter.dtype == dtype for parameter in call.module.parameters())
        if isinstance(call.module, nn.Conv2d):
            assert call.input.is_contiguous(memory_format=torch.channels_last)
            assert call.module.weight.is_contiguous(memory_format=torch.channels_last)
        call()
    assert not any(part._forward_hooks for part in step.objective.modules())


def test_the_first_one_needs_no_gradient_of_the_images_and_a_stem_only_that_of_its_bias():
    for model in ("resnet-caps-small", "fast-caps-tiny"):
        first, *others = convolutions_of(step_of(model, "fp32")).calls
        assert not first.input.requires_grad
        assert all(call.input.requires_grad for call in others)
    bias, *rest = first._inputs()
    assert bias is first.module.bias
    assert not rest


def test_outputs_are_those_of_the_network():
    step = step_of("fast-caps-tiny", "fp32")
    outputs = []
    for part in step.objective.modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    stem, *others = convolutions_of(step).calls
    for call, output in zip(others, outputs, strict=True):
        torch.testing.assert_close(call.module(call.input), output, rtol=0, atol=0)
    whitening = step.objective.network.model.backbone.stem
    expected = nn.functional.conv2d(stem.input, whitening.weight, whitening.bias)
    torch.testing.assert_close(stem.module(stem.input), expected)


def test_a_bare_step_in_half_precision_changes_weights_of_full_precision():
    step = step_of("fast-caps-tiny", "bf16")
    before = [parameter.detach().clone() for parameter in step.objective.parameters()]
    exact = replace(step, half=None).forward()
    assert step.half is torch.bfloat16
    torch.testing.assert_close(step.forward().float(), exact, rtol=0.05, atol=0.05)
    step()
    after = list(step.objective.parameters())
    assert all(parameter.dtype == torch.float32 for parameter in after)
    assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
