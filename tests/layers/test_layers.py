import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paircaps import (
    CapsuleLayer,
    Capsules,
    DynamicRouting,
    EMRouting,
    PrimaryCapsules,
    functional,
    list_routings,
)
from paircaps.layers.norms import CapsuleNorm
from paircaps.votes import MatrixVotes, VectorVotes


@pytest.mark.parametrize("routing", list_routings())
@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
@pytest.mark.parametrize("transform", ["matrix", "vector"])
def test_a_layer_is_votes_then_norm_then_routing(transform, vote_norm, routing):
    layer = CapsuleLayer(6, 3, routing=routing, transform=transform, vote_norm=vote_norm).eval()
    u, activation = torch.randn(4, 6, 16), torch.rand(4, 6)
    votes_of = functional.matrix_votes if transform == "matrix" else functional.vector_votes
    assert isinstance(layer.votes, MatrixVotes | VectorVotes)
    votes = votes_of(u, layer.votes.weight)
    if isinstance(layer.norm, CapsuleNorm):
        nn.init.normal_(layer.norm.weight)
        nn.init.normal_(layer.norm.bias)
        scale, shift = (p.reshape(layer.norm.shape) for p in (layer.norm.weight, layer.norm.bias))
        votes = votes / (1 + 1e-3) ** 0.5 * scale + shift
    expected = layer.routing(votes, activation, u)
    for one, other in zip(layer(u, activation), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_default_layer_is_the_papers():
    layer = CapsuleLayer(6, 3)
    assert isinstance(layer.votes, MatrixVotes)
    assert tuple(layer.votes.weight.shape) == (6, 3, 4, 4)
    assert isinstance(layer.norm, CapsuleNorm)
    assert layer.norm.shape == (16,)


def test_layers_chain_and_hand_their_activation_on():
    first, second = CapsuleLayer(6, 4, routing="em"), CapsuleLayer(4, 3, routing="em")
    u = torch.randn(8, 6, 16)
    below = first(u)
    expected = second(below.s, below.activation)
    for one, other in zip(nn.Sequential(first, second)(u), expected, strict=True):
        torch.testing.assert_close(one, other)
    ignored = second(below.s)
    assert not torch.allclose(ignored.pose, expected.pose)


def test_the_next_layer_receives_s_and_not_the_pose():
    capsules = Capsules(torch.randn(8, 6, 16), torch.randn(8, 6, 16), torch.rand(8, 6))
    layer = CapsuleLayer(6, 3).eval()
    torch.testing.assert_close(layer(capsules).s, layer(capsules.s).s)  # E8


def test_a_routing_can_be_injected_by_name_by_class_or_built():
    assert isinstance(CapsuleLayer(6, 3, routing="em").routing, EMRouting)
    by_class = CapsuleLayer(6, 3, routing=DynamicRouting, routing_options={"iterations": 2}).routing
    assert isinstance(by_class, DynamicRouting)
    assert by_class.iterations == 2
    built = DynamicRouting(3, iterations=5)
    assert CapsuleLayer(6, 3, routing=built).routing is built


def test_free_leading_dims():
    layer = CapsuleLayer(6, 3).eval()
    u = torch.randn(2, 5, 6, 16)
    torch.testing.assert_close(layer(u).s[1, 4], layer(u[1, 4]).s)


def test_primary_capsules_are_squashed_patches():
    primary = PrimaryCapsules(3, (8, 6), groups=2, pose_dim=4)
    features = torch.randn(5, 3, 8, 6)
    u, pose, activation = primary(features)
    assert primary.grid == (4, 3)
    assert u.shape == (5, *primary.out_grid, 4) == (5, 4, 3, 2, 4)
    assert primary.out_capsules == 4 * 3 * 2
    assert u is pose
    torch.testing.assert_close(activation, u.norm(dim=-1))
    x = primary.conv(features).unflatten(1, (2, 4))  # (B, groups, pose, height, width)
    mean, variance = x.mean(dim=(0, 1, 3, 4)), x.var(dim=(0, 1, 3, 4), unbiased=False)
    expected = functional.squash((x[:, 1, :, 2, 1] - mean) / (variance + 1e-3).sqrt())
    torch.testing.assert_close(u[:, 2, 1, 1], expected, rtol=1e-4, atol=1e-5)
    # in one row, group 1 of the position in row 2, column 1, is capsule (2·3 + 1)·2 + 1
    torch.testing.assert_close(u.flatten(1, 3)[:, (2 * 3 + 1) * 2 + 1], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["pose", "channel", "capsule"])
def test_primary_norms_differ_in_what_shares_a_statistic(norm):
    primary = PrimaryCapsules(3, (8, 6), groups=2, pose_dim=4, norm=norm)
    assert isinstance(primary.norm, CapsuleNorm)
    assert primary.norm.num_features == {"pose": 4, "channel": 2 * 4, "capsule": 4 * 3 * 2 * 4}[norm]
    for value in (primary.norm.weight, primary.norm.bias):
        nn.init.normal_(value)
    features = torch.randn(5, 3, 8, 6)
    x = primary.conv(features).unflatten(1, (2, 4))  # (B, groups, pose, height, width)
    over = {"pose": (0, 1, 3, 4), "channel": (0, 3, 4), "capsule": (0,)}[norm]
    x = (x - x.mean(over, keepdim=True)) / (x.var(over, correction=0, keepdim=True) + 1e-3).sqrt()
    shape = {"pose": (1, 1, 4), "channel": (1, 2, 4), "capsule": (12, 2, 4)}[norm]
    scale, shift = (value.view(shape) for value in (primary.norm.weight, primary.norm.bias))
    x = x.permute(0, 3, 4, 1, 2).flatten(1, 2) * scale + shift  # (B, positions, groups, pose)
    torch.testing.assert_close(
        primary(features).s.flatten(1, 3), functional.squash(x.flatten(1, 2)), rtol=1e-4, atol=1e-5
    )


def test_primary_norm_of_channels_is_batch_norm_of_the_convolution():
    primary = PrimaryCapsules(3, (8, 6), groups=2, pose_dim=4, norm="channel")
    plain = nn.BatchNorm2d(8, eps=1e-3)
    for value in (primary.norm.weight, primary.norm.bias):
        nn.init.normal_(value)
    plain.load_state_dict(primary.norm.state_dict())
    for _ in range(3):
        features = 1 + torch.randn(5, 3, 8, 6)
        x = plain(primary.conv(features)).unflatten(1, (2, 4)).permute(0, 3, 4, 1, 2).flatten(1, 3)
        torch.testing.assert_close(primary(features).s.flatten(1, 3), functional.squash(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(primary.norm.state_dict(), plain.state_dict())
    primary.eval(), plain.eval()
    x = plain(primary.conv(features)).unflatten(1, (2, 4)).permute(0, 3, 4, 1, 2).flatten(1, 3)
    torch.testing.assert_close(primary(features).s.flatten(1, 3), functional.squash(x), rtol=1e-4, atol=1e-5)


def test_primary_activation_is_the_squash_factor():
    primary = PrimaryCapsules(3, (8, 8), norm=None)
    features = torch.randn(5, 3, 8, 8)
    x = primary.conv(features).unflatten(1, (4, 16)).permute(0, 3, 4, 1, 2).flatten(1, 3)
    square = x.square().sum(dim=-1)
    torch.testing.assert_close(primary(features).activation.flatten(1), square / (1 + square))


@pytest.mark.parametrize(
    ("squash", "function"),
    [
        ("square", functional.squash),
        ("exponential", functional.squash_exponential),
        ("relu", torch.relu),
        (None, lambda x: x),
    ],
)
def test_primary_capsules_have_the_squash_that_was_asked_for(squash, function):
    primary = PrimaryCapsules(3, (8, 8), norm=None, squash=squash)
    features = torch.randn(5, 3, 8, 8)
    u = function(primary.conv(features).unflatten(1, (4, 16)).permute(0, 3, 4, 1, 2))
    torch.testing.assert_close(primary(features).pose, u)
    torch.testing.assert_close(primary(features).activation, u.norm(dim=-1))


def test_a_depthwise_convolution_as_large_as_the_maps_leaves_one_position():
    primary = PrimaryCapsules(8, (9, 6), groups=2, pose_dim=4, kernel_size=(9, 6), padding=0, norm=None, depthwise=True)
    assert primary.out_grid == (1, 1, 2)
    assert primary.conv.weight.shape == (8, 1, 9, 6)
    features = torch.randn(5, 8, 9, 6)
    x = torch.einsum("bchw,chw->bc", features, primary.conv.weight[:, 0])  # each channel by its own kernel
    torch.testing.assert_close(primary(features).s[:, 0, 0], functional.squash(x.view(5, 2, 4)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(primary.centres(), torch.tensor([[3.0, 4.5], [3.0, 4.5]]))  # x, y


def test_a_learned_activation_is_a_sigmoid_of_the_capsules_own_values():
    primary = PrimaryCapsules(3, (8, 6), groups=2, pose_dim=4, activation="learned")
    features = torch.randn(5, 3, 8, 6)
    weight = primary.presence[0].weight.view(2, 4)
    values = torch.einsum("bgkhw,gk->bhwg", primary.conv(features).unflatten(1, (2, 4)), weight)
    mean, variance = values.mean((0, 1, 2)), values.var((0, 1, 2), correction=0)
    u, _, activation = primary(features)
    expected = ((values - mean) / (variance + 1e-3).sqrt()).sigmoid()
    torch.testing.assert_close(activation, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(u, PrimaryCapsules.forward(with_length(primary), features).s)


@pytest.mark.parametrize("bias", [True, False])
def test_an_activation_of_the_features_is_a_sigmoid_of_a_convolution_of_its_own(bias):
    primary = PrimaryCapsules(
        3, (8, 6), groups=2, pose_dim=4, kernel_size=3, padding=1, bias=bias, squash=None, activation="features"
    )
    own = primary.presence[0]
    assert (own.bias is not None) == (primary.conv.bias is not None) == bias
    features = torch.randn(5, 3, 8, 6)
    expected = F.conv2d(features, own.weight, own.bias, stride=2, padding=1).sigmoid()
    activation = primary(features).activation
    assert activation.shape == (5, *primary.out_grid)
    torch.testing.assert_close(activation, expected.movedim(1, -1))


def with_length(primary):
    """The same primary capsules with their length for an activation: their vectors do not depend on it."""
    other = PrimaryCapsules(3, (8, 6), groups=2, pose_dim=4)
    other.load_state_dict(primary.state_dict(), strict=False)
    return other


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PrimaryCapsules(3, 8, activation="gate"), "'length', 'learned', 'features', got 'gate'"),
        (lambda: PrimaryCapsules(3, 8, squash="cube"), "'square', 'exponential', 'relu', None, got 'cube'"),
        (lambda: PrimaryCapsules(3, 8, depthwise=True), "4 capsules of 16, 64 in all, got in_channels=3"),
        (lambda: PrimaryCapsules(3, 8, sparse=True), 'sparse=True is for activation="learned"'),
        (lambda: CapsuleLayer((2, 2, 2), 3, start="zero"), "start must be one of 'layer', 'capsule'"),
        (lambda: CapsuleLayer(8, 3, routing_options={"scale": 0.0}), "scale must be"),
        (lambda: CapsuleLayer(6, 3, pose_dim=8), "square number, got 8 .*4 and 9"),
        (lambda: CapsuleLayer(6, 3, pose_dim=16, in_dim=8), "in_dim=8 and pose_dim=16"),
        (lambda: CapsuleLayer(0, 3), "in_capsules must be at least 1, got 0"),
        (lambda: CapsuleLayer(6, 3, transform="dense"), "'matrix', 'vector', got 'dense'"),
        (lambda: CapsuleLayer(6, 3, vote_norm="batch"), "'pose', 'vote', None, got 'batch'"),
        (lambda: CapsuleLayer(6, 3, routing="median"), "unknown routing 'median'"),
        (lambda: CapsuleLayer(6, 3, routing=DynamicRouting(4)), "layer of 3 capsules got a routing built for 4"),
        (lambda: CapsuleLayer(6, 3)(torch.randn(2, 6, 16), torch.ones(2, 5)), r"\(2, 6\).*\(2, 5\)"),
        (lambda: CapsuleLayer(6, 3, routing=DynamicRouting(3), routing_options={"iterations": 1}), "built already"),
        (lambda: CapsuleLayer(6, 3)(torch.randn(2, 5, 16)), r"expected 6 child capsules of 16.*\(2, 5, 16\)"),
        (lambda: CapsuleLayer(6, 3)(torch.randn(2, 6, 8)), r"expected 6 child capsules of 16.*\(2, 6, 8\)"),
        (lambda: CapsuleLayer(6, 3)(torch.randn(16)), r"too few"),
        (lambda: CapsuleLayer(6, 3, routing="em")(torch.randn(2, 6, 16), torch.ones(2, 5)), r"\(2, 6\).*\(2, 5\)"),
        (lambda: PrimaryCapsules(3, (8, 8))(torch.randn(2, 3, 9, 8)), r"3, 8, 8\).*\(2, 3, 9, 8\)"),
        (lambda: PrimaryCapsules(3, (8, 8), padding=0, kernel_size=9), "8×8 are too small"),
        (lambda: PrimaryCapsules(3, (8, 8), norm="vote"), "'pose', 'channel', 'capsule', None, got 'vote'"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_words_that_quote_it(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(("transform", "fans"), [("matrix", 64 * 10 * 8), ("vector", 64 * 16 + 64 * 10 * 16)])
def test_vote_weights_start_by_glorots_rule_for_the_whole_kernel(transform, fans):
    weight = CapsuleLayer(64, 10, transform=transform).votes.weight
    assert weight.std().item() == pytest.approx((2 / fans) ** 0.5, rel=0.05)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: CapsuleLayer(6.0, 3), "in_capsules must be a whole number, got 6.0"),
        (lambda: CapsuleLayer(6, 3, pose_dim="16"), "pose_dim must be a whole number, got '16'"),
        (lambda: CapsuleLayer(6, 3, routing=None), "named by a string, got None"),
        (lambda: CapsuleLayer(6, 3, routing="em")(torch.randn(2, 6, 16), [1.0]), "activation must be a tensor"),
        (lambda: PrimaryCapsules(3, (8, 8, 8)), r"in_size must be a side or \(height, width\)"),
        (lambda: PrimaryCapsules(3, 8, padding="same"), "padding must be a whole number, got 'same'"),
    ],
)
def test_wrong_types_are_named(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_activation_is_not_taken_twice():
    capsules = CapsuleLayer(6, 6)(torch.randn(2, 6, 16))
    with pytest.raises(ValueError, match="given twice"):
        CapsuleLayer(6, 3)(capsules, torch.ones(2, 6))
