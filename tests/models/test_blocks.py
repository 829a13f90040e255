"""Each network against its layers written out one by one, with batch norm that has been somewhere."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paircaps import CapsNet, DeconvDecoder, ResNetCapsules, ResNetPool, create_model, functional, list_models
from paircaps.layers import set_norm_momentum
from paircaps.models import CapsNetPool
from paircaps.models.resnet import BasicBlock, ResNetBackbone


def travelled(module):
    """The module in eval mode, with batch norms that are not the identity."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor in (norm.weight, norm.running_var):
                nn.init.uniform_(tensor, 0.5, 2)
            for tensor in (norm.bias, norm.running_mean):
                nn.init.normal_(tensor)
    return module.eval()


def normalised(norm, x):
    shape = (1, -1, *[1] * (x.dim() - 2))
    mean, variance, weight, bias = (
        value.reshape(shape) for value in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    return (x - mean) / (variance + 1e-3).sqrt() * weight + bias


def assert_close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("in_channels", "stride"), [(8, 1), (4, 2)])
def test_a_block_is_two_preactivated_convolutions_and_a_shortcut(in_channels, stride):
    block, x = travelled(BasicBlock(in_channels, 8, stride)), torch.randn(2, in_channels, 6, 6)
    active = normalised(block.norm1[0], x).relu()
    inner = F.conv2d(active, block.conv1.weight, stride=stride, padding=1)
    inner = normalised(block.norm2[0], inner).relu()
    residual = F.conv2d(inner, block.conv2.weight, padding=1)
    # where the shape changes, the shortcut starts from the activated input; elsewhere it is the input itself
    shortcut = x if block.shortcut is None else F.conv2d(active, block.shortcut.weight, stride=stride)
    assert (block.shortcut is None) == (stride == 1)
    assert_close(block(x), residual + shortcut)


def test_the_backbone_is_stem_stages_and_a_last_activation():
    backbone, x = travelled(ResNetBackbone(3, (1, 2, 1))), torch.randn(2, 3, 13, 16)
    stem = normalised(backbone.stem[1][0], F.conv2d(x, backbone.stem[0].weight, padding=1)).relu()
    assert isinstance(backbone.stages[0].norm1, nn.Identity)  # the stem has just activated it
    assert [tuple(block.conv1.stride) for block in backbone.stages] == [(1, 1), (2, 2), (1, 1), (2, 2)]
    assert_close(backbone(x), normalised(backbone.norm[0], backbone.stages(stem)).relu())
    assert backbone(x).shape == (2, 64, *backbone.out_size((13, 16))) == (2, 64, 4, 4)


def test_capsnet_is_a_convolution_and_relu_under_its_capsules():
    model = CapsNet(filters=16, groups=2).eval()
    x = torch.randn(2, 1, 28, 28)
    features = F.conv2d(x, model.conv.weight, model.conv.bias).relu()
    u = functional.squash(model.primary.conv(features).unflatten(1, (2, 8)).permute(0, 3, 4, 1, 2).flatten(1, 3))
    votes = functional.vector_votes(u, model.layers[0].votes.weight)
    for one, other in zip(model(x), functional.fm_agreement(votes), strict=True):
        assert_close(one, other)


def test_resnet_capsules_is_the_papers_figure():
    model = travelled(ResNetCapsules(blocks=(1, 1, 1), hidden_capsules=(6,)))
    x = torch.randn(2, 1, 28, 28)
    capsules = model.primary.conv(model.backbone(x)).unflatten(1, (4, 16)).permute(0, 3, 4, 1, 2).flatten(1, 3)
    u = functional.squash(normalised(model.primary.norm, capsules.reshape(-1, 16)).reshape(capsules.shape))
    for layer in model.layers:
        votes = functional.matrix_votes(u, layer.votes.weight)
        votes = normalised(layer.norm, votes.reshape(-1, 16)).reshape(votes.shape)
        result = functional.fm_agreement(votes)
        u = result.s
    for one, other in zip(model(x), result, strict=True):
        assert_close(one, other)


def test_resnet_pool_averages_its_last_activation():
    model = travelled(ResNetPool(blocks=(1, 1, 1), head_width=12))
    x = torch.randn(2, 1, 28, 28)
    maps = F.conv2d(model.backbone(x), model.head[0].weight, stride=2, padding=2)
    features = normalised(model.head[1][0], maps).relu().flatten(2).mean(dim=2)
    capsules = model(x)
    assert_close(capsules.pose, torch.stack([features] * 10, dim=1))
    assert_close(capsules.activation, F.linear(features, model.classify.weight, model.classify.bias))


def test_capsnet_pool_is_two_convolutions_and_a_mean():
    model = CapsNetPool(filters=5, head_width=12)
    x = torch.randn(2, 1, 28, 28)
    first, _, second, _ = model.features
    maps = F.conv2d(F.conv2d(x, first.weight, first.bias).relu(), second.weight, second.bias, stride=2).relu()
    assert maps.shape == (2, 12, 6, 6)
    features = maps.flatten(2).mean(dim=2)
    capsules = model(x)
    assert_close(capsules.pose, torch.stack([features] * 10, dim=1))
    assert_close(capsules.activation, F.linear(features, model.classify.weight, model.classify.bias))


def test_the_deconvolution_decoder_layer_by_layer():
    decoder = travelled(DeconvDecoder(16, 28))
    dense, norm1, _, _, deconv1, norm2, _, deconv2, norm3, _, deconv3, _ = decoder.layers
    pose = torch.randn(3, 1, 16)
    x = F.leaky_relu(normalised(norm1, F.linear(pose[:, 0], dense.weight, dense.bias)), 0.3)
    x = F.conv_transpose2d(x.reshape(3, 64, 7, 7), deconv1.weight, deconv1.bias, padding=2)
    x = F.leaky_relu(normalised(norm2, x), 0.3)
    double = {"stride": 2, "padding": 2, "output_padding": 1}
    x = F.leaky_relu(normalised(norm3, F.conv_transpose2d(x, deconv2.weight, deconv2.bias, **double)), 0.3)
    x = F.conv_transpose2d(x, deconv3.weight, deconv3.bias, **double).sigmoid()
    capsules = functional.Capsules(pose, pose, torch.ones(3, 1))
    assert_close(decoder(capsules), x)


@pytest.mark.parametrize("name", [name for name in list_models() if not name.startswith("fast-")])
def test_batch_norms_have_the_papers_constants(name):
    model = create_model(name, norm_momentum=0.01)  # as its recipes say
    decoder = DeconvDecoder(model.pose_dim)
    set_norm_momentum(decoder, 0.01)
    norms = [m for part in (model, decoder) for m in part.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert norms
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 0.01)}


@pytest.mark.parametrize("name", list_models())
def test_convolutions_start_he_normal(name):
    for convolution in create_model(name).modules():
        if isinstance(convolution, nn.Conv2d) and convolution.weight.numel() > 2000:
            fan_in = convolution.weight[0].numel()
            assert convolution.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.1)
