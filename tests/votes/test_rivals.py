"""Other routings than FM agreement do without the votes of the whole batch too."""

import copy

import pytest
import torch
from votes.twins import FORMS, everything

from paircaps import CapsuleLayer
from paircaps.bench.memory import bytes_for_backward
from paircaps.votes import LazyVotes
from paircaps.votes.kernels import choice
from paircaps.votes.kernels.native import library_problem


@pytest.fixture
def two_images(monkeypatch):
    """Chunks of two images, for layers of 97 children and 7 parents."""
    monkeypatch.setattr("paircaps.votes.layout.IMAGE_BYTES", 2 * 4 * 97 * 7 * 16)
    monkeypatch.setattr("paircaps.votes.lazy_votes.TILE_BYTES", 1)


@pytest.mark.usefixtures("two_images")
@pytest.mark.parametrize("streaming", ["auto", True])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("transform", "vote_norm"), FORMS)
@pytest.mark.parametrize("routing", ["attention", "dynamic", "efficient", "em", "heinsen", "vb"])
def test_rivals_a_few_images_at_a_time(routing, transform, vote_norm, training, streaming, monkeypatch):
    plain = CapsuleLayer(97, 7, routing=routing, transform=transform, vote_norm=vote_norm, streaming=False)
    plain = plain.double().train(training)
    few = copy.deepcopy(plain)
    few.streaming = streaming
    u = torch.randn(2, 5, 97, 16, dtype=torch.float64)
    activation = torch.rand(2, 5, 97, dtype=torch.float64)
    expected = everything(lambda u: plain(u, activation), u, plain)
    monkeypatch.setattr(LazyVotes, "dense", None)
    found = everything(lambda u: few(u, activation), u, few)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-8, atol=1e-8, msg=lambda text, name=name: name + text)


@pytest.mark.usefixtures("two_images")
@pytest.mark.parametrize("routing", ["attention", "dynamic", "efficient", "em", "heinsen", "vb"])
def test_rivals_in_half_precision_and_autocast(routing):
    u = torch.randn(12, 97, 16)
    layer = CapsuleLayer(97, 7, routing=routing, vote_norm=None)
    expected = layer(u).s
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(layer(u).s, expected)
    assert layer.bfloat16()(u.bfloat16()).s.dtype == torch.bfloat16


def test_one_iteration_chooses_its_precision_itself():
    layer = CapsuleLayer(97, 7, routing="dynamic", vote_norm=None, routing_options={"iterations": 1})
    u = torch.randn(8, 97, 16)
    expected = layer(u).s
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(layer(u).s, expected)


@pytest.mark.usefixtures("two_images")
def test_asked_to_stream_the_rivals_keep_no_votes_for_backward():
    def kept(streaming):
        layer = CapsuleLayer(97, 7, routing="dynamic", vote_norm=None, streaming=streaming)
        u = torch.randn(48, 97, 16, requires_grad=True)
        return bytes_for_backward(lambda: layer(u).activation.sum(), layer)

    votes = 4 * 48 * 97 * 7 * 16
    with choice.only("tiles"):
        assert kept("auto") > votes
        assert kept(True) < votes / 4
    if library_problem() is None:  # each pass of the kernel keeps its arguments, the children, and no votes
        assert kept("auto") < 4 * 4 * 48 * 97 * 16 < votes


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
    monkeypatch.setattr(LazyVotes, "dense", None)
    found = everything(fast, u)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9)
