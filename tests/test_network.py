import pytest
import torch

from paircaps.data import CentreCrop, Standardise
from paircaps.network import Network, NetworkSpec, Preparation


def spec(preparation, decoder="none", side=16):
    arguments = {"num_classes": 3, "in_channels": 1, "image_size": side, "routing": "fm"}
    return NetworkSpec("resnet-caps-small", arguments, ("a", "b", "c"), preparation, decoder)


def test_preparation_is_part_of_the_network():
    network = Network(spec(Preparation((20, 20), (16, 16), standardise=True))).eval()
    images = torch.randint(256, (4, 1, 20, 20), dtype=torch.uint8)
    seen = Standardise()(CentreCrop(16)(images))
    expected = network.model(seen)
    torch.testing.assert_close(network(images).activation, expected.activation)
    torch.testing.assert_close(network(images.float() / 255).activation, expected.activation)
    torch.testing.assert_close(network(CentreCrop(16)(images)).activation, expected.activation)


def test_predict_looks_with_settled_eyes_and_changes_nothing():
    network = Network(spec(Preparation((16, 16), (16, 16)))).train()
    images = torch.rand(4, 1, 16, 16)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    labels = network.predict(images)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert labels.equal(network.eval()(images).activation.argmax(-1))


def test_reconstruct_takes_the_pose_of_the_most_active_or_the_labelled_capsule():
    network = Network(spec(Preparation((16, 16), (16, 16)), "dense")).eval()
    images = torch.rand(4, 1, 16, 16)
    label = torch.tensor([0, 1, 2, 0])
    assert network.reconstruct(images).shape == images.shape
    torch.testing.assert_close(network.reconstruct(images, label), network.decoder(network(images), label))
    with pytest.raises(ValueError, match="trained without a decoder"):
        Network(spec(Preparation((16, 16), (16, 16)))).reconstruct(images)


def test_wrong_parts_are_refused():
    with pytest.raises(ValueError, match=r"crop \(20, 20\) is larger than the image, \(16, 16\)"):
        Preparation((16, 16), (20, 20))
    with pytest.raises(ValueError, match="decoder must be one of 'none', 'deconv', 'dense', got 'best'"):
        spec(Preparation((16, 16), (16, 16)), "best")
    with pytest.raises(ValueError, match="2 classes for a model of 3"):
        NetworkSpec("capsnet", {"num_classes": 3}, ("a", "b"), Preparation((28, 28), (28, 28)))
