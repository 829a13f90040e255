import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from paircaps import CapsuleLayer, PrimaryCapsules, create_model, list_models, settle
from paircaps.data import Batch
from paircaps.layers.norms import CapsuleNorm, set_norm_momentum


@pytest.mark.parametrize(("shape", "axes"), [((4,), (0, 1, 2)), ((5, 3, 4), (0,)), ((3, 4), (0, 1))])
def test_statistics_are_kept_for_the_trailing_axes(shape, axes):
    norm, x = CapsuleNorm(shape), 3 + 2 * torch.randn(8, 5, 3, 4)
    y = norm(x)
    mean, variance = x.mean(dim=axes), x.var(dim=axes, unbiased=False)
    torch.testing.assert_close(y, (x - mean) / (variance + 1e-3).sqrt(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(norm.running_mean, 0.1 * mean.flatten(), rtol=1e-4, atol=1e-5)


def test_other_trailing_axes_are_refused():
    with pytest.raises(ValueError, match=r"\(\.\.\., 5, 4\).*\(8, 4, 5\)"):
        CapsuleNorm((5, 4))(torch.randn(8, 4, 5))


def test_a_single_image_is_refused_in_training_and_fine_afterwards():
    norm = CapsuleNorm((5, 4))
    with pytest.raises(ValueError, match=r"more than one image.*\(1, 5, 4\).*eval mode"):
        norm(torch.randn(1, 5, 4))
    assert norm.eval()(torch.randn(1, 5, 4)).shape == (1, 5, 4)


# --- running statistics ----------------------------------------------------------------------------------------------


def momenta(module):
    return {norm.momentum for norm in module.modules() if isinstance(norm, _BatchNorm)}


@pytest.mark.parametrize("name", list_models())
def test_models_have_the_momentum_of_pytorch_or_a_chosen_one(name):
    if momenta(model := create_model(name)):
        assert momenta(model) == {0.1}
        assert momenta(create_model(name, norm_momentum=0.01)) == {0.01}


def test_layers_have_the_momentum_of_pytorch_or_a_chosen_one():
    for build in (lambda **options: CapsuleLayer(8, 3, **options), lambda **options: PrimaryCapsules(4, 8, **options)):
        assert momenta(build()) == {0.1}
        assert momenta(build(norm_momentum=0.3)) == {0.3}
    with pytest.raises(ValueError, match=r"norm_momentum must be from 0 to 1, got 1.5"):
        set_norm_momentum(CapsuleLayer(8, 3), 1.5)
    with pytest.raises(ValueError, match=r"momentum must be from 0 to 1, got -1"):
        CapsuleLayer(8, 3, norm_momentum=-1)


def small_model():
    return nn.Sequential(nn.BatchNorm1d(4, momentum=0.2), nn.Linear(4, 4), CapsuleNorm((4,), 0.3))


def test_settled_statistics_are_the_mean_over_the_batches():
    model = small_model()
    batches = [3 + torch.randn(50, 4), 5 + 2 * torch.randn(50, 4)]
    model(100 * torch.randn(50, 4))  # statistics of other times, which are forgotten
    model.eval()
    model[1].train()
    settle(model, batches)
    means = torch.stack([batch.mean(0) for batch in batches])
    variances = torch.stack([batch.var(0) for batch in batches])
    torch.testing.assert_close(model[0].running_mean, means.mean(0))
    torch.testing.assert_close(model[0].running_var, variances.mean(0))
    assert [norm.momentum for norm in (model[0], model[2])] == [0.2, 0.3]
    assert [part.training for part in model] == [False, True, False], "modes are as before"
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("kind", ["tensor", "tuple", "batch", "bytes"])
def test_batches_of_every_kind_settle_alike(kind):
    images = torch.randint(256, (20, 4), dtype=torch.uint8)
    labels = torch.zeros(20, dtype=torch.long)
    floats = images / 255
    given = {"tensor": floats, "tuple": (floats, labels), "batch": Batch(floats, labels, labels), "bytes": images}[kind]
    model = small_model()
    settle(model, [given])
    torch.testing.assert_close(model[0].running_mean, floats.mean(0))


def test_settling_without_a_batch_is_refused_and_leaves_the_momenta():
    model = small_model()
    with pytest.raises(ValueError, match="settle needs one batch at least, got none"):
        settle(model, [])
    with pytest.raises(TypeError, match=r"a batch to settle with is a tensor, .* got str"):
        settle(model, ["images"])
    assert momenta(model) == {0.2, 0.3}


@pytest.mark.parametrize("batches", [[], [torch.randn(9, 4), torch.randn(9, 3)], [torch.full((9, 4), torch.nan)]])
def test_a_failed_settling_leaves_the_statistics_as_they_were(batches):
    # earlier they were reset first, and a network of 88.8 % had 10.2 % after the error
    model = small_model()
    model(3 + torch.randn(50, 4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises((ValueError, RuntimeError)):
        settle(model, batches)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_settling_takes_as_many_batches_as_it_is_told():
    model, first = small_model(), torch.randn(20, 4)
    settle(model, iter([first, 100 * torch.randn(20, 4)]), limit=1)
    torch.testing.assert_close(model[0].running_mean, first.mean(0))
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        settle(model, [first], limit=0)
