"""Dynamic routing by sums of coupled votes is dynamic routing of the votes themselves."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from paircaps import CapsuleLayer
from paircaps.votes import LazyVotes
from paircaps.votes.kernels import choice
from paircaps.votes.kernels.native import library_problem
from paircaps.votes.operators import can_couple, coupled_sums
from paircaps.votes.tiled_sums import SumArguments

pytestmark = pytest.mark.skipif(library_problem() is not None, reason=f"no C kernel here: {library_problem()}")

BATCH = 41  # neither a multiple of the lanes nor of two vectors of them


def layer(children, parents, in_dim=16, **options):
    torch.manual_seed(0)
    built = CapsuleLayer(children, parents, in_dim=in_dim, routing="dynamic", streaming=True, **options)
    nn.init.normal_(built.votes.weight, std=0.3)  # large enough that children prefer some parents to others
    return built


LAYERS = {
    "matrix, norm of each dimension": lambda: layer(97, 7),
    "matrix, norm of each vote": lambda: layer(97, 7, vote_norm="vote"),
    "vector": lambda: layer(97, 7, 8, transform="vector", vote_norm=None),
    "odd sizes": lambda: layer(61, 5, 7, pose_dim=11, transform="vector", vote_norm=None),
    "one parent": lambda: layer(33, 1, 9, pose_dim=9, vote_norm=None),
    "more parents than fit a cache": lambda: layer(5, 301, vote_norm=None),
}


def passes(module, u):
    """Poses, and the gradients of children and weights by a loss that tells all dimensions apart."""
    u = u.clone().requires_grad_()
    pose = module(u).pose
    slope = torch.linspace(-1, 2, pose[0].numel(), dtype=pose.dtype).view_as(pose[0])
    return pose.detach(), *torch.autograd.grad((pose * slope).sum(), [u, *module.parameters()])


def no_dense_votes(monkeypatch):
    monkeypatch.setattr(LazyVotes, "dense", None)
    monkeypatch.setattr(LazyVotes, "by_image", None)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_it_is_at_most_twice_as_far_from_float64_as_dense_votes(name, training, monkeypatch):
    ours = LAYERS[name]().train(training)
    plain, precise = copy.deepcopy(ours), copy.deepcopy(ours).double()
    plain.streaming = precise.streaming = False
    u = torch.randn(BATCH, ours.in_capsules, ours.in_dim)
    expected, dense = passes(precise, u.double()), passes(plain, u)
    no_dense_votes(monkeypatch)
    for found, theirs, exact in zip(passes(ours, u), dense, expected, strict=True):
        scale = exact.abs().max()
        assert (found - exact).abs().max() <= 2 * (theirs - exact).abs().max() + 2e-6 * scale


def test_every_iteration_counts():
    u = torch.randn(BATCH, 97, 16)
    poses = [layer(97, 7, routing_options={"iterations": count}).eval()(u).pose for count in (1, 2, 3, 4)]
    assert all((one - other).abs().max() > 1e-3 for one, other in pairwise(poses))


def test_the_running_statistics_are_updated_once():
    one, other = layer(97, 7), layer(97, 7)
    other.streaming = False
    u = torch.randn(BATCH, 97, 16)
    one(u), other(u)
    torch.testing.assert_close(one.norm.running_mean, other.norm.running_mean)
    torch.testing.assert_close(one.norm.running_var, other.norm.running_var)


def test_the_bits_do_not_depend_on_the_number_of_threads():
    module, u = layer(97, 7), torch.randn(200, 97, 16)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3, 2):
            torch.set_num_threads(count)
            arguments = SumArguments(u, module.votes.weight.detach(), None, None, 4, False)
            agreed = torch.linspace(-1, 1, 200 * 7 * 16).view(200, 7, 16)
            results.append(coupled_sums(arguments, agreed))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(result, results[0]) for result in results)


def test_half_precision_children_are_routed_in_full_precision(monkeypatch):
    module = layer(97, 7, vote_norm=None)
    u = torch.randn(BATCH, 97, 16)
    expected = copy.deepcopy(module)(u.bfloat16().float()).pose
    no_dense_votes(monkeypatch)
    with torch.autocast("cpu", torch.bfloat16):
        found = module(u.bfloat16()).pose
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_logits_far_apart_neither_overflow_nor_become_nan():
    u = torch.randn(BATCH, 20, 16)
    weight = torch.randn(20, 3, 4, 4)
    arguments = SumArguments(u, weight, None, None, 4, False)
    agreed = 1e4 * torch.randn(BATCH, 3, 16)
    votes = torch.einsum("bipq,ijqr->bijpr", u.double().unflatten(-1, (4, 4)), weight.double()).flatten(-2)
    coupling = torch.einsum("bijk,bjk->bij", votes, agreed.double()).softmax(-1)
    expected = torch.einsum("bij,bijk->bjk", coupling, votes)
    torch.testing.assert_close(coupled_sums(arguments, agreed).double(), expected, rtol=1e-4, atol=1e-4)


def test_where_no_kernel_runs_votes_of_a_few_images_are_dense(monkeypatch):
    module, u = layer(97, 7), torch.randn(BATCH, 97, 16)
    expected = module(u).pose
    monkeypatch.setenv("PAIRCAPS_KERNEL", "off")
    monkeypatch.setattr("paircaps.votes.lazy_votes.coupled_sums", None)
    torch.testing.assert_close(module(u).pose, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reason", ["float64", "a transform of torch.func", "shared weights", "off"])
def test_what_the_kernel_does_not_take(reason):
    u, weight = torch.randn(4, 12, 16), torch.randn(12, 3, 4, 4)
    arguments = SumArguments(u, weight, None, None, 4, False)
    assert can_couple(arguments)
    if reason == "float64":
        assert not can_couple(arguments._replace(u=u.double(), weight=weight.double()))
    elif reason == "shared weights":
        assert not can_couple(arguments._replace(weight=weight[:4]))
    elif reason == "off":
        with choice.only("tiles"):
            assert not can_couple(arguments)
    else:
        seen = []
        torch.func.grad(lambda x: (seen.append(can_couple(arguments._replace(u=x))), x.sum())[1])(u)
        assert seen == [False]


def test_it_is_compiled_without_the_kernel():
    module = layer(97, 7).eval()
    u = torch.randn(BATCH, 97, 16)
    compiled = torch.compile(module, backend="aot_eager")
    torch.testing.assert_close(compiled(u).pose, module(u).pose, rtol=1e-4, atol=1e-5)


def test_a_second_derivative_is_refused():
    module, u = layer(97, 7, vote_norm=None), torch.randn(BATCH, 97, 16, requires_grad=True)
    (grad,) = torch.autograd.grad(module(u).activation.sum(), u, create_graph=True)
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        grad.sum().backward()
