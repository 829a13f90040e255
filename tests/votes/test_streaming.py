"""The fast path of a layer is its plain path: values, gradients and statistics, in every mode and at odd sizes."""

import copy
import itertools

import pytest
import torch
from reference import loops
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from paircaps import CapsuleLayer, Capsules, FMAgreement, create_model, testing
from paircaps.bench.memory import bytes_for_backward
from paircaps.routing import Routing
from paircaps.votes import MatrixVotes, VectorVotes, Votes, tile_children
from paircaps.votes.layout import TILE_BYTES
from paircaps.votes.walk import Job, walk_gradients, walk_sums

FORMS = list(itertools.product(["matrix", "vector"], ["pose", "vote", None]))


def twins(transform, vote_norm, *, children=97, parents=7, in_dim=16, dtype=torch.float32, **options):
    """A layer that streams, and the same one with dense votes, with weights and statistics that are not the first."""
    sizes = {"in_capsules": children, "out_capsules": parents, "in_dim": in_dim}
    layers = [
        CapsuleLayer(**sizes, transform=transform, vote_norm=vote_norm, routing_options=options, streaming=streaming)
        for streaming in (True, False)
    ]
    if vote_norm is not None:
        for value in (layers[0].norm.weight, layers[0].norm.bias, layers[0].norm.running_mean):
            nn.init.normal_(value)
        nn.init.uniform_(layers[0].norm.running_var, 0.5, 2)
    layers[1].load_state_dict(layers[0].state_dict())
    return [layer.to(dtype) for layer in layers]


def everything(forward, u, layer=None):
    """Capsules, gradients and running statistics after one pass, by name."""
    layer = layer or forward
    u = u.clone().requires_grad_()
    capsules = forward(u)
    generator = torch.Generator().manual_seed(5)
    weights = (torch.randn(part.shape, generator=generator, dtype=torch.float64) for part in capsules)
    loss = sum((part * weight.to(part.dtype)).sum() for part, weight in zip(capsules, weights, strict=True))
    names = [name for name, _ in layer.named_parameters()]
    gradients = torch.autograd.grad(loss, [u, *layer.parameters()])
    found = {**capsules._asdict(), **{f"d {name}": g for name, g in zip(["u", *names], gradients, strict=True)}}
    return {**found, **{name: buffer.clone() for name, buffer in layer.named_buffers()}}


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
        return self.routing(Votes(votes.flatten(-2), transform, nn.Identity(), True, tile=2), activation)


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


@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
def test_autocast(vote_norm):
    fast, plain = twins("matrix", vote_norm)
    u = torch.randn(16, 97, 16)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = everything(plain, u), everything(fast, u)
    exact = everything(twins_of(fast), u)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        if not name.startswith("running"):
            continue
        ours, theirs = ((part[name] - exact[name]).abs().max() for part in (found, expected))
        assert ours <= 2 * theirs + 1e-5, name


def twins_of(layer):
    """The same layer before anything was learnt, in dense votes."""
    other = copy.deepcopy(layer)
    other.streaming = False
    return other


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
def test_compiled_for_a_batch_of_any_size():
    fast, plain = twins("matrix", "pose")
    compiled = torch.compile(fast.eval(), fullgraph=True, backend="aot_eager", dynamic=True)
    for batch in (9, 5, 12):
        u = torch.randn(batch, 97, 16)
        torch.testing.assert_close(compiled(u).s, plain.eval()(u).s, rtol=1e-4, atol=1e-5)


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


def test_without_gradients():
    fast, plain = twins("matrix", "pose")
    u = torch.randn(6, 97, 16)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            found = fast.eval()(u)
        assert not found.s.requires_grad
        torch.testing.assert_close(found.s, plain.eval()(u).s, rtol=1e-4, atol=1e-5)


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


# --- the choice ---------------------------------------------------------------------------------------------------


@pytest.fixture
def walks(monkeypatch):
    """Counts walks over tiles."""
    seen = []
    original = Votes.sums

    def sums(self, *, normalize):
        seen.append(self.shape)
        return original(self, normalize=normalize)

    monkeypatch.setattr(Votes, "sums", sums)
    return seen


LARGE = (8, TILE_BYTES // (4 * 8 * 10 * 16) + 1, 16)
"""Children whose votes for ten parents of 16 fill more than a tile."""


def test_auto_streams_where_the_votes_fill_more_than_a_tile(walks):
    CapsuleLayer(LARGE[1], 10)(torch.randn(LARGE))
    assert len(walks) == 1
    CapsuleLayer(8, 10)(torch.randn(8, 8, 16))
    CapsuleLayer(LARGE[1], 10).eval()(torch.randn(1, *LARGE[1:]))
    assert len(walks) == 1


def test_false_never_streams_and_true_always_does(walks):
    CapsuleLayer(LARGE[1], 10, streaming=False)(torch.randn(LARGE))
    assert not walks
    CapsuleLayer(8, 10, streaming=True)(torch.randn(2, 8, 16))
    assert len(walks) == 1


def test_a_routing_that_does_not_stream_gets_all_votes_and_says_so():
    class Mean(Routing):
        def agree(self, votes, activation):
            assert isinstance(votes, torch.Tensor)
            mean = votes.mean(dim=-3)
            return Capsules(mean, mean, mean.norm(dim=-1))

    assert CapsuleLayer(LARGE[1], 10, routing=Mean)(torch.randn(LARGE)).s.shape == (8, 10, 16)
    with pytest.raises(ValueError, match=r'streaming=True needs .* Mean\(out_capsules=10\) .*"auto"'):
        CapsuleLayer(8, 10, routing=Mean, streaming=True)


def test_who_hooks_into_the_votes_sees_them(walks):
    layer, seen = CapsuleLayer(LARGE[1], 10), []
    handle = layer.norm.register_forward_hook(lambda *given: seen.append(given[-1].shape))
    layer(torch.randn(LARGE))
    assert seen == [(*LARGE[:2], 10, 16)]
    assert not walks
    handle.remove()
    layer(torch.randn(LARGE))
    assert len(walks) == 1


def test_a_transform_of_ones_own_is_called(walks):
    layer = CapsuleLayer(LARGE[1], 10)
    layer.votes = nn.Sequential(layer.votes, nn.Dropout(1.0))
    assert layer(torch.randn(LARGE)).s.abs().max() == 0 or not walks
    assert not walks


def test_a_routing_that_is_just_a_module_gets_a_tensor():
    class Mean(nn.Module):
        def forward(self, votes, activation=None):
            mean = votes.mean(dim=-3)
            return Capsules(mean, mean, mean.norm(dim=-1))

    assert CapsuleLayer(8, 10, routing=Mean())(torch.randn(2, 8, 16)).s.shape == (2, 10, 16)


def test_exported_it_is_dense():
    layer = CapsuleLayer(LARGE[1], 10).eval()
    u = torch.randn(LARGE)
    program = torch.export.export(layer, (u,))
    assert not [node for node in program.graph.nodes if "paircaps" in str(node.target)]
    torch.testing.assert_close(program.module()(u).s, layer(u).s, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", ["yes", None, 2])
def test_other_words_are_refused(value):
    with pytest.raises(ValueError, match="streaming must be one of 'auto', True, False"):
        CapsuleLayer(8, 10, streaming=value)


@pytest.mark.parametrize("value", [0, -1])
def test_a_tile_has_at_least_one_child(value):
    with pytest.raises(ValueError, match="tile must be at least 1"):
        CapsuleLayer(8, 10, tile=value)


@pytest.mark.parametrize("name", ["resnet-caps-small", "capsnet-light"])
def test_models_take_the_option(name, walks):
    model = create_model(name, image_size=24, streaming=True)
    model(torch.randn(2, 1, 24, 24))
    assert len(walks) == len(model.layers)


# --- memory -------------------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that an operation returned."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for part in result if isinstance(result, list | tuple) else [result]:
            if isinstance(part, torch.Tensor):
                self.elements = max(self.elements, part.untyped_storage().nbytes() // 4)
        return result


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("transform", [MatrixVotes, VectorVotes])
def test_nothing_as_large_as_the_votes_is_ever_there(transform, scaled):
    batch, children, parents = 256, 512, 10
    weights = transform(children, parents, 16, 16)
    u, weight = torch.randn(batch, children, 16), weights.weight.detach()
    affine = (torch.ones(16), torch.zeros(16)) if scaled else (None, None)
    job = Job(u, weight, *affine, weights.rows, True, tile_children(batch, parents, 16))
    slope = torch.randn(batch, parents, 16)
    with Largest() as largest:
        walk_sums(job)
        walk_gradients(job, slope, slope)
    assert largest.elements <= max(TILE_BYTES // 4, u.numel(), weight.numel())
    assert largest.elements < batch * children * parents * 16 / 8


@pytest.mark.parametrize(("batch", "parents", "pose_dim"), [(128, 10, 16), (1, 10, 16), (128, 1000, 16), (4096, 5, 64)])
def test_a_tile_fills_its_bytes(batch, parents, pose_dim):
    tile = tile_children(batch, parents, pose_dim)
    assert tile >= 1
    chunk = min(parents, max(1, TILE_BYTES // (4 * batch * pose_dim * 8)))
    assert tile == 1 or 4 * tile * batch * chunk * pose_dim <= TILE_BYTES
    assert 4 * (tile + 1) * batch * chunk * pose_dim > TILE_BYTES


# --- the rivals ---------------------------------------------------------------------------------------------------


@pytest.fixture
def three_images(monkeypatch):
    """Chunks of three images, for layers of 97 children and 7 parents."""
    monkeypatch.setattr("paircaps.votes.layout.IMAGE_BYTES", 3 * 4 * 97 * 7 * 16)
    monkeypatch.setattr("paircaps.votes.ballot.TILE_BYTES", 1)


@pytest.mark.usefixtures("three_images")
@pytest.mark.parametrize("streaming", ["auto", True])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("transform", "vote_norm"), FORMS)
@pytest.mark.parametrize("routing", ["dynamic", "em"])
def test_rivals_a_few_images_at_a_time(routing, transform, vote_norm, training, streaming, monkeypatch):
    plain = CapsuleLayer(97, 7, routing=routing, transform=transform, vote_norm=vote_norm, streaming=False)
    plain = plain.double().train(training)
    few = copy.deepcopy(plain)
    few.streaming = streaming
    u = torch.randn(2, 5, 97, 16, dtype=torch.float64)
    activation = torch.rand(2, 5, 97, dtype=torch.float64)
    expected = everything(lambda u: plain(u, activation), u, plain)
    monkeypatch.setattr(Votes, "dense", None)
    found = everything(lambda u: few(u, activation), u, few)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-8, atol=1e-8, msg=lambda text, name=name: name + text)


@pytest.mark.usefixtures("three_images")
@pytest.mark.parametrize("routing", ["dynamic", "em"])
def test_rivals_in_half_precision_and_autocast(routing):
    u = torch.randn(8, 97, 16)
    layer = CapsuleLayer(97, 7, routing=routing, vote_norm=None)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(u).s.dtype == torch.float32
    assert layer.bfloat16()(u.bfloat16()).s.dtype == torch.bfloat16


@pytest.mark.usefixtures("three_images")
def test_asked_to_stream_the_rivals_keep_no_votes_for_backward():
    def kept(streaming):
        layer = CapsuleLayer(97, 7, routing="dynamic", vote_norm=None, streaming=streaming)
        u = torch.randn(48, 97, 16, requires_grad=True)
        return bytes_for_backward(lambda: layer(u).activation.sum(), layer)

    votes = 4 * 48 * 97 * 7 * 16
    assert kept("auto") > votes
    assert kept(True) < votes / 4


# --- dynamic routing with one iteration --------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("transform", "vote_norm"), FORMS)
def test_one_iteration_of_dynamic_routing_is_one_matrix_product(transform, vote_norm, training, monkeypatch):
    once = {"routing": "dynamic", "routing_options": {"iterations": 1}}
    fast = CapsuleLayer(97, 7, transform=transform, vote_norm=vote_norm, **once)
    plain = copy.deepcopy(fast)
    plain.streaming = False
    fast, plain = (layer.double().train(training) for layer in (fast, plain))
    u = torch.randn(5, 97, 16, dtype=torch.float64)
    expected = everything(plain, u)
    monkeypatch.setattr(Votes, "dense", None)
    found = everything(fast, u)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9)
