"""When a layer streams, and who gets to see its votes all the same."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from votes.twins import LARGE, twins

from paircaps import CapsuleLayer, Capsules, DynamicRouting, EMRouting, FMAgreement, create_model
from paircaps.layers.norms import CapsuleNorm
from paircaps.routing import Routing, VoteNeeds
from paircaps.votes import LazyVotes, MatrixVotes, tile_children
from paircaps.votes.kernels import choice


@pytest.fixture
def tiled(monkeypatch):
    """Shapes of the votes that were summed tile by tile, one a call."""
    seen = []
    original = LazyVotes.sums

    def sums(self, **options):
        seen.append(self.shape)
        return original(self, **options)

    monkeypatch.setattr(LazyVotes, "sums", sums)
    return seen


def test_auto_streams_where_the_votes_fill_more_than_a_tile(tiled):
    CapsuleLayer(LARGE[1], 10)(torch.randn(LARGE))
    assert len(tiled) == 1
    CapsuleLayer(8, 10)(torch.randn(8, 8, 16))
    CapsuleLayer(3 * LARGE[1], 10).eval()(torch.randn(7, 3 * LARGE[1], 16))  # too few images
    assert len(tiled) == 1


def test_false_never_streams_and_true_always_does(tiled):
    CapsuleLayer(LARGE[1], 10, streaming=False)(torch.randn(LARGE))
    assert not tiled
    CapsuleLayer(8, 10, streaming=True)(torch.randn(2, 8, 16))
    assert len(tiled) == 1


def test_a_routing_that_does_not_stream_gets_all_votes_and_says_so():
    class Mean(Routing):
        def agree(self, votes, activation):
            assert isinstance(votes, torch.Tensor)
            mean = votes.mean(dim=-3)
            return Capsules(mean, mean, mean.norm(dim=-1))

    assert CapsuleLayer(LARGE[1], 10, routing=Mean)(torch.randn(LARGE)).s.shape == (8, 10, 16)
    with pytest.raises(ValueError, match=r'streaming=True needs .* Mean\(out_capsules=10\) .*"auto"'):
        CapsuleLayer(8, 10, routing=Mean, streaming=True)


HOOKS = [f"register_{when}_{kind}" for when in ("forward", "full_backward") for kind in ("hook", "pre_hook")]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("part", ["votes", "norm", "routing"])
def test_who_hooks_into_the_votes_sees_them(part, hook, tiled):
    layer, seen = CapsuleLayer(LARGE[1], 10), []

    def look(_, *given):
        seen.extend(value for values in given for value in (values if isinstance(values, tuple) else (values,)))

    handle = getattr(getattr(layer, part), hook)(look)
    u = torch.randn(LARGE, requires_grad=True)
    layer(u).activation.sum().backward()
    assert any(isinstance(value, torch.Tensor) for value in seen)
    assert not tiled
    handle.remove()
    layer(u)
    assert len(tiled) == 1


def test_whoever_overrides_a_part_is_heard(tiled):
    class Positive(FMAgreement):
        def agree(self, votes, activation):
            return super().agree(votes.relu(), activation)

    class Doubled(MatrixVotes):
        def forward(self, u):
            return 2 * super().forward(u)

    class Shifted(CapsuleNorm):
        def forward(self, input):
            return super().forward(input) + 1

    u = torch.randn(LARGE)
    for change in (
        lambda layer: setattr(layer, "routing", Positive(10)),
        lambda layer: setattr(layer, "votes", Doubled(LARGE[1], 10, 16, 16)),
        lambda layer: setattr(layer, "norm", Shifted((16,))),
    ):
        layer = CapsuleLayer(LARGE[1], 10)
        change(layer)
        expected = copy.deepcopy(layer)
        expected.streaming = False
        torch.testing.assert_close(layer(u).s, expected(u).s)
    assert not tiled


def test_a_routing_with_a_forward_of_its_own_gets_a_tensor():
    class Loud(FMAgreement):
        def forward(self, votes, activation=None):
            return self.agree(2 * votes, activation)

    assert CapsuleLayer(LARGE[1], 10, routing=Loud)(torch.randn(LARGE)).s.shape == (8, 10, 16)


class MeanVote(Routing):
    """A routing of a user's own, with the need that a test gives it."""

    needs = VoteNeeds.EVERYTHING

    def agree(self, votes, activation):
        return self.agree_on_total(votes.sum(dim=-3), votes.shape[-3])

    def agree_on_sums(self, total, squares, children):
        return self.agree_on_total(total, children)

    def agree_on_total(self, total, children):
        mean = total / children
        return Capsules(mean, mean, mean.norm(dim=-1))


@pytest.mark.parametrize("need", VoteNeeds)
def test_a_routing_of_ones_own_gets_what_it_needs_and_nothing_more(need, monkeypatch):
    routing = type("Declared", (MeanVote,), {"needs": need})(10)
    u = torch.randn(LARGE, dtype=torch.float64)
    streaming = need is not VoteNeeds.EVERYTHING or "auto"
    layer = CapsuleLayer(LARGE[1], 10, routing=routing, streaming=streaming, vote_norm=None).double()
    votes = layer.votes(u)
    if need is VoteNeeds.SUMS_OF_UNIT_VOTES:
        votes = nn.functional.normalize(votes, dim=-1)
    if need is not VoteNeeds.EVERYTHING:
        monkeypatch.setattr(LazyVotes, "dense", None)
    torch.testing.assert_close(layer(u).s, votes.mean(dim=-3))
    assert routing.streams == (need is not VoteNeeds.EVERYTHING)
    assert routing.by_image == (need in (VoteNeeds.IMAGES, VoteNeeds.COUPLED_SUMS))


def test_what_is_declared_above_an_overridden_agree_is_not_believed(monkeypatch):
    """The class above declared what its own ``agree`` needs."""
    monkeypatch.setattr("paircaps.votes.layout.IMAGE_BYTES", 1)  # one image at a time

    class Largest(EMRouting):
        def agree(self, votes, activation):
            assert len(votes) == 8, "the whole batch"
            largest = votes.amax(dim=-3)
            return Capsules(largest, largest, largest.norm(dim=-1))

    class ByImage(Largest):
        needs = VoteNeeds.IMAGES

    u = torch.randn(LARGE)
    assert CapsuleLayer(LARGE[1], 10, routing=Largest, streaming=True)(u).s.shape == (8, 10, 16)
    with pytest.raises(AssertionError, match="the whole batch"):
        CapsuleLayer(LARGE[1], 10, routing=ByImage, streaming=True)(u)


@pytest.mark.parametrize("need", [VoteNeeds.SUMS, VoteNeeds.TOTAL])
def test_a_need_without_its_method_is_an_error_that_names_both(need):
    class Half(Routing):
        needs = need

        def agree(self, votes, activation):
            raise AssertionError("not reached")

    layer = CapsuleLayer(8, 10, routing=Half, streaming=True)
    with pytest.raises(NotImplementedError, match=rf"Half declares {need} and has no agree_on_{need.value}\(\)"):
        layer(torch.randn(2, 8, 16))


@pytest.mark.parametrize("need", [VoteNeeds.IMAGES, VoteNeeds.SUMS, VoteNeeds.TOTAL])
def test_shapes_and_results_are_checked_whatever_a_routing_gets(need):
    layer = CapsuleLayer(8, 10, routing=type("Declared", (MeanVote,), {"needs": need}), streaming=True)
    with pytest.raises(ValueError, match=r"activation must have shape \(2, 8\).*\(2, 7\)"):
        layer(torch.randn(2, 8, 16), torch.ones(2, 7))
    layer.routing.out_capsules = 9
    with pytest.raises(ValueError, match="built for 9 parents, got votes for 10"):
        layer(torch.randn(2, 8, 16))
    layer.routing.out_capsules = 10
    layer.routing.agree_on_total = lambda total, children: total
    with pytest.raises(TypeError, match=r"Declared\.agree(_on_sums|_on_total|) must return Capsules, got Tensor"):
        layer(torch.randn(2, 8, 16))


def test_an_empty_batch_stays_one():
    rivals = [CapsuleLayer(97, 7, routing=routing, streaming=True).eval() for routing in ("dynamic", "em")]
    for layer in (*twins("matrix", "pose"), *rivals):
        layer.eval()
        assert layer(torch.randn(0, 97, 16)).s.shape == (0, 7, 16)


def test_channels_last_is_for_convolutions():
    layer = CapsuleLayer(6, 3).to(memory_format=torch.channels_last)
    assert layer.votes.weight.is_contiguous()


def test_a_transform_of_ones_own_is_called(tiled):
    layer = CapsuleLayer(LARGE[1], 10)
    layer.votes = nn.Sequential(layer.votes, nn.Dropout(1.0))
    assert layer(torch.randn(LARGE)).s.abs().max() == 0 or not tiled
    assert not tiled


def test_a_routing_that_is_just_a_module_gets_a_tensor():
    class Mean(nn.Module):
        def forward(self, votes, activation=None):
            mean = votes.mean(dim=-3)
            return Capsules(mean, mean, mean.norm(dim=-1))

    assert CapsuleLayer(8, 10, routing=Mean())(torch.randn(2, 8, 16)).s.shape == (2, 10, 16)


@pytest.mark.parametrize("streaming", ["auto", True])
@pytest.mark.parametrize("routing", ["fm", "dynamic", partial(DynamicRouting, iterations=1)])
def test_exported_it_is_dense(routing, streaming):
    layer = CapsuleLayer(LARGE[1], 10, routing=routing, streaming=streaming).eval()
    u = torch.randn(LARGE)
    program = torch.export.export(layer, (u,))
    assert not [node for node in program.graph.nodes if "paircaps" in str(node.target)]
    torch.testing.assert_close(program.module()(u).s, layer(u).s, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", ["yes", None, 2, 0, 1])
def test_other_words_are_refused(value):
    with pytest.raises(ValueError, match="streaming must be one of 'auto', True, False"):
        CapsuleLayer(8, 10, streaming=value)


@pytest.mark.parametrize("value", [0, -1])
def test_a_tile_has_at_least_one_child(value):
    with pytest.raises(ValueError, match="tile must be at least 1"):
        CapsuleLayer(8, 10, tile=value)


def test_the_tile_that_was_asked_for_is_used(monkeypatch):
    tiles = []
    path = choice.PATHS["tiles"]
    seen = path._replace(sums=lambda arguments: tiles.append(arguments.tile_size) or path.sums(arguments))
    monkeypatch.setattr(choice, "PATHS", {"tiles": seen})
    CapsuleLayer(8, 10, streaming=True, tile=3)(torch.randn(2, 8, 16))
    CapsuleLayer(8, 10, streaming=True)(torch.randn(2, 8, 16))
    assert tiles == [3, tile_children(2, 10, 16)]


def test_a_tile_without_streaming_is_refused_and_a_large_one_is_all_children():
    with pytest.raises(ValueError, match="tile=4 is for streaming"):
        CapsuleLayer(8, 10, streaming=False, tile=4)
    layer = CapsuleLayer(8, 10, streaming=True, tile=10**30)
    assert "8×16 -> 10×16, streaming=True, tile=8" in repr(layer)
    assert layer(torch.randn(2, 8, 16)).s.shape == (2, 10, 16)


@pytest.mark.parametrize("name", ["resnet-caps-small", "capsnet-light", "fast-caps-tiny"])
def test_models_take_the_option(name, tiled):
    model = create_model(name, image_size=24, streaming=True)
    model(torch.randn(2, 1, 24, 24))
    assert len(tiled) == len(model.layers)
