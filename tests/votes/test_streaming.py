"""The fast path of a layer is its plain path: values, gradients and statistics, in every mode and at odd sizes."""

import copy

import pytest
import torch
from reference import loops
from torch import nn
from votes.twins import FORMS, everything, twins

from paircaps import CapsuleLayer, Capsules, FMAgreement, testing
from paircaps.votes import LazyVotes, VectorVotes


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(("transform", "vote_norm"), FORMS)
def test_streaming_is_the_plain_path(transform, vote_norm, normalize, training):
    fast, plain = twins(transform, vote_norm, dtype=torch.float64, normalize=normalize)
    u = 1 + torch.randn(5, 97, 16, dtype=torch.float64)
    expected, found = (everything(layer.train(training), u) for layer in (plain, fast))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-9, atol=1e-9, msg=lambda text, name=name: f"{name} {text}"
        )


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("batch", [1, 8, 129])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("transform", "vote_norm"), FORMS)
def test_its_rounding_error_is_at_most_twice_the_plain_ones(transform, vote_norm, training, batch):
    if training and batch == 1 and vote_norm == "vote":
        pytest.skip("one image has no variance")
    fast, plain = (layer.train(training) for layer in twins(transform, vote_norm))
    exact = copy.deepcopy(plain).double()
    u = torch.randn(batch, 97, 16)
    truth = everything(exact, u.double())
    found, expected = everything(fast, u), everything(plain, u)
    for name, value in truth.items():
        largest = value.abs().max()
        ours, theirs = ((part[name] - value).abs().max() for part in (found, expected))
        assert ours <= 2 * theirs + 2e-7 * largest, name


@pytest.mark.usefixtures("path")
def test_many_tiles_do_not_add_up_rounding_errors():
    layers = [CapsuleLayer(6000, 2, 4, streaming=True, tile=1, vote_norm=None)]
    layers += [copy.deepcopy(layers[0]) for _ in range(2)]
    layers[1].streaming = layers[2].streaming = False
    u = 1 + torch.rand(8, 6000, 4)
    truth = layers[2].double()(u.double()).s
    ours, theirs = ((layer(u).s - truth).abs().max() for layer in layers[:2])
    assert ours <= 2 * theirs


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("vote_norm", ["pose", "vote"])
@pytest.mark.parametrize("scale", [1e-12, 1e14])
def test_batch_norm_of_tiny_and_huge_votes(vote_norm, scale):
    """1/σ³, the derivative of 1/σ, ends float32 for votes of 1e14."""
    fast, plain = twins("matrix", vote_norm)
    u = scale * torch.randn(16, 97, 16)
    truth = everything(copy.deepcopy(plain).double(), u.double())
    expected, found = everything(plain, u), everything(fast, u)
    for name, value in truth.items():
        ours, theirs = ((part[name] - value).abs().max() for part in (found, expected))
        assert ours <= 2 * theirs + 1e-5 * value.abs().max(), name


@pytest.mark.usefixtures("path")
def test_one_child_has_nothing_to_learn():
    """s is zero, and its direction divides by 1e-12: what does not cancel exactly is garbage."""
    u = torch.randn(9, 1, 16, requires_grad=True)
    layer = CapsuleLayer(1, 5, vote_norm=None, streaming=True)
    layer(u).pose.sum().backward()
    assert u.grad.abs().max() == layer.votes.weight.grad.abs().max() == 0


@pytest.mark.usefixtures("path")
def test_a_training_step_between_forward_and_backward_of_another():
    fast, _ = twins("matrix", "pose")
    u = torch.randn(6, 97, 16, requires_grad=True)
    before = fast.eval()(u).activation.sum()
    fast.train()(u)
    before.backward()
    assert u.grad is not None


def test_a_norm_that_keeps_no_statistics_keeps_none():
    fast, plain = twins("matrix", "pose")
    for layer in (fast, plain):
        layer.norm.track_running_stats = False
        layer(torch.randn(6, 97, 16))
    for one, other in zip(fast.norm.buffers(), plain.norm.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("tile", [1, 13, 96, 97, 1000])
@pytest.mark.parametrize("transform", ["matrix", "vector"])
def test_the_size_of_a_tile_changes_nothing(transform, tile):
    fast, plain = twins(transform, "pose", dtype=torch.float64)
    fast.tile = tile
    u = torch.randn(3, 97, 16, dtype=torch.float64)
    expected, found = everything(plain, u), everything(fast, u)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
@pytest.mark.parametrize("transform", ["matrix", "vector"])
def test_many_parents_are_walked_in_chunks(transform, vote_norm, monkeypatch):
    monkeypatch.setattr("paircaps.votes.layout.TILE_BYTES", 4 * 5 * 16 * 8 * 3)  # three parents at a time
    fast, plain = twins(transform, vote_norm, dtype=torch.float64)
    u = torch.randn(5, 97, 16, dtype=torch.float64)
    expected, found = everything(plain, u), everything(fast, u)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9)


def test_children_and_parents_may_have_other_sizes_than_the_pose():
    fast, plain = twins("vector", None, in_dim=8, dtype=torch.float64)
    u = torch.randn(2, 3, 97, 8, dtype=torch.float64)
    expected, found = everything(plain, u), everything(fast, u)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9)


class Streamed(nn.Module):
    """A routing on given votes that goes over the tiles: every vote is a child's own, picked out by 0-1 weights."""

    def __init__(self, out_capsules, **options):
        super().__init__()
        self.routing = FMAgreement(out_capsules, **options)

    def forward(self, votes, activation=None):
        children, parents, pose_dim = votes.shape[-3:]
        transform = VectorVotes(children, parents, parents * pose_dim, pose_dim)
        pick = torch.eye(parents * pose_dim, dtype=votes.dtype).unflatten(1, (parents, pose_dim)).transpose(0, 1)
        transform.weight = nn.Parameter(pick.expand(children, -1, -1, -1), requires_grad=False)
        votes = LazyVotes(votes.flatten(-2), transform, nn.Identity(), True, tile=2)
        return votes.route(self.routing, activation)


@pytest.mark.parametrize("activation", ["sum", "squash"])
@pytest.mark.parametrize("normalize", [True, False])
def test_the_suite_of_routings_on_the_fast_path(normalize, activation):
    testing.check_routing(Streamed(3, normalize=normalize, activation=activation), 3)


@pytest.mark.parametrize("children", [2, 7])
def test_the_fast_path_is_the_loop_of_the_paper(children):
    def loop(votes, _):
        return Capsules(*(torch.tensor(part, dtype=torch.float64) for part in loops.fm_agreement(votes.tolist())))

    testing.assert_matches_oracle(Streamed(3), loop, 3, children=children)


def test_votes_too_short_to_have_a_direction_are_divided_by_a_constant():
    scales = torch.tensor([0.0, 1e-13, 3e-12, 1.0], dtype=torch.float64)
    votes = (scales[:, None, None] * torch.randn(4, 3, 2, dtype=torch.float64)).unsqueeze(0)
    expected, found = (
        torch.autograd.grad(routing(part).activation.sum(), part)[0]
        for routing, part in ((FMAgreement(3), votes.clone().requires_grad_()), (Streamed(3), votes.requires_grad_()))
    )
    torch.testing.assert_close(found * scales[:, None, None], expected * scales[:, None, None], rtol=1e-9, atol=1e-12)


# --- training and inference, as people run them ---------------------------------------------------------------------


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
def test_autocast(vote_norm):
    """The plain path casts its votes in bfloat16; tiled sums are computed in float32, and are the more exact."""
    fast, plain = twins("matrix", vote_norm)
    exact = copy.deepcopy(plain)
    u = 3 + torch.randn(16, 97, 16)
    truth = everything(exact, u)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = everything(plain, u), everything(fast, u)
    for name, value in truth.items():
        assert found[name].dtype == expected[name].dtype, name
        torch.testing.assert_close(found[name], value, rtol=1e-2, atol=1e-3 * value.abs().max().item())


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
def test_half_precision_is_better_than_the_plain_path(vote_norm):
    fast, plain = twins("matrix", vote_norm, dtype=torch.bfloat16)
    exact = copy.deepcopy(plain).double()
    u = torch.randn(16, 97, 16, dtype=torch.bfloat16)
    truth, expected, found = everything(exact, u.double()), everything(plain, u), everything(fast, u)
    for name, value in truth.items():
        assert found[name].dtype == expected[name].dtype, name
        ours, theirs = ((part[name].double() - value).abs().max() for part in (found, expected))
        assert ours <= 1.1 * theirs + 1e-3 * value.abs().max(), name


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
def test_compiled_whole(vote_norm):
    fast, plain = twins("matrix", vote_norm)
    u = torch.randn(8, 97, 16)
    compiled = torch.compile(fast, fullgraph=True, backend="aot_eager")
    expected, found = everything(plain, u), everything(compiled, u)
    for name, value in expected.items():
        other = found.get(name, found.get(name.replace("d ", "d _orig_mod."), found.get(f"_orig_mod.{name}")))
        torch.testing.assert_close(other, value, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("training", [True, False])
def test_compiled_by_the_default_compiler_for_children_in_another_order_of_memory(training, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    fast, plain = (layer.train(training) for layer in twins("matrix", "pose"))
    u = torch.randn(97, 9, 16).transpose(0, 1)
    expected, found = everything(plain, u), everything(torch.compile(fast), u, fast)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("path", "fresh_compiler")
def test_compiled_for_a_batch_of_any_size():
    fast, plain = twins("matrix", "pose")
    compiled = torch.compile(fast.eval(), fullgraph=True, backend="aot_eager", dynamic=True)
    for batch in (9, 5, 12):
        u = torch.randn(batch, 97, 16)
        torch.testing.assert_close(compiled(u).s, plain.eval()(u).s, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("path")
def test_gradients_accumulate():
    fast, plain = twins("matrix", "vote")
    for layer in (fast, plain):
        for seed in (1, 2):
            u = torch.randn(6, 97, 16, generator=torch.Generator().manual_seed(seed))
            layer(u).activation.square().sum().backward()
    for (name, one), other in zip(fast.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: name + text)


def test_a_frozen_weight_and_a_frozen_input_get_no_gradient():
    fast, plain = twins("matrix", "pose", dtype=torch.float64)
    u = torch.randn(6, 97, 16, dtype=torch.float64)
    for layer in (fast, plain):
        layer.votes.weight.requires_grad_(False)
        layer(u).activation.square().sum().backward()
        assert layer.votes.weight.grad is None
    torch.testing.assert_close(fast.norm.weight.grad, plain.norm.weight.grad)


@pytest.mark.usefixtures("path")
def test_without_gradients():
    fast, plain = twins("matrix", "pose")
    u = torch.randn(6, 97, 16)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            found = fast.eval()(u)
        assert not found.s.requires_grad
        torch.testing.assert_close(found.s, plain.eval()(u).s, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("path")
def test_a_second_derivative_is_refused_in_words():
    fast, _ = twins("matrix", "pose")
    u = torch.randn(6, 97, 16, requires_grad=True)
    (gradient,) = torch.autograd.grad(fast(u).activation.square().sum(), u, create_graph=True)
    with pytest.raises(RuntimeError, match=r"differentiated once.*streaming=False"):
        gradient.sum().backward()


def test_gradients_of_single_images_by_vmap():
    fast, plain = (layer.eval() for layer in twins("matrix", "pose", dtype=torch.float64))
    u = torch.randn(3, 97, 16, dtype=torch.float64)

    def per_image(layer):
        def loss(weights, u):
            return torch.func.functional_call(layer, weights, (u,)).activation.square().sum()

        weights = dict(layer.named_parameters())
        return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, u)

    expected, found = per_image(plain), per_image(fast)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-5)


def test_momentum_none_averages_all_batches():
    fast, plain = twins("matrix", "pose")
    for layer in (fast, plain):
        layer.norm.reset_running_stats()
        layer.norm.momentum = None
        for seed in range(3):
            layer(torch.randn(6, 97, 16, generator=torch.Generator().manual_seed(seed)))
    for one, other in zip(fast.norm.buffers(), plain.norm.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_single_image_is_refused_in_training():
    fast, _ = twins("matrix", "vote")
    with pytest.raises(ValueError, match=r"more than one image to train on.*eval mode"):
        fast(torch.randn(1, 97, 16))


def test_another_dtype_is_refused_in_words():
    fast, _ = twins("matrix", "pose")
    with pytest.raises(TypeError, match=r"float64 and the vote weights torch\.float32"):
        fast(torch.randn(2, 97, 16, dtype=torch.float64))
