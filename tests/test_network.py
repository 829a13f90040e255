import io
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from paircaps.data import CentreCrop, Standardise
from paircaps.errors import DataError
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.pictures import Fitting, find_pictures


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
    labels = network.classify(images)
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
    with pytest.raises(ValueError, match="decoder must be one of 'none', 'deconv', 'dense', 'deepcaps', got 'best'"):
        spec(Preparation((16, 16), (16, 16)), "best")
    with pytest.raises(ValueError, match="2 classes for a model of 3"):
        NetworkSpec("capsnet", {"num_classes": 3}, ("a", "b"), Preparation((28, 28), (28, 28)))


# --- prediction of pictures ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    arguments = {"num_classes": 3, "in_channels": 1, "image_size": 16, "routing": "fm"}
    return Network(NetworkSpec("resnet-caps-small", arguments, tuple("abc"), Preparation((16, 16), (16, 16)))).eval()


@pytest.fixture
def pictures(tmp_path):
    for number in range(3):
        noise = torch.randint(256, (16, 16), dtype=torch.uint8).numpy()
        Image.fromarray(noise).save(tmp_path / f"p{number}.png")
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


def test_pictures_are_seen_as_the_network_was_taught(network, pictures):
    (seen,) = network.predict_sources(find_pictures([str(pictures / "p0.png")]))
    image = torch.from_numpy(np.asarray(Image.open(pictures / "p0.png")).copy())[None, None]
    expected = network(image).activation[0]
    assert list(seen.activations.values()) == pytest.approx(expected.tolist(), rel=1e-5)
    assert seen.labels == ("abc"[int(expected.argmax())],)


def test_a_folder_gives_its_pictures_and_passes_over_the_rest(network, pictures):
    seen = list(network.predict_sources(find_pictures([str(pictures)])))
    assert [entry.name for entry in seen] == [str(pictures / f"p{number}.png") for number in range(3)]
    assert all(entry.labels for entry in seen)


def test_a_bad_one_does_not_stop_the_others(network, pictures):
    places = [pictures / "nowhere.png", pictures / "p1.png", pictures / "notes.txt", pictures / "p2.png"]
    seen = list(network.predict_sources(find_pictures(map(str, places))))
    assert [bool(entry.error) for entry in seen] == [True, False, True, False]
    assert "nowhere.png" in seen[0].error
    assert "not a PNG, JPEG, BMP or WebP picture" in seen[2].error
    assert not seen[0].labels


def test_a_picture_of_a_kind_that_is_not_read_is_told_and_not_left_out(network, pictures):
    Image.new("L", (16, 16)).save(pictures / "moving.gif")
    seen = list(network.predict_sources(find_pictures([str(pictures)])))
    assert len(seen) == 4
    assert seen[0].error.startswith(f"{pictures / 'moving.gif'}: pictures of this kind are not read")


def test_an_empty_folder_is_an_error(network, tmp_path):
    (seen,) = network.predict_sources(find_pictures([str(tmp_path)]))
    assert "no picture in this folder" in seen.error


def test_more_than_one_group(network, pictures):
    many = [str(pictures / "p0.png")] * 150
    assert len({entry.labels for entry in network.predict_sources(find_pictures(many))}) == 1


def test_dark_on_light_can_be_inverted(network, pictures):
    ImageOps.invert(Image.open(pictures / "p0.png")).save(pictures / "inverted.png")
    (plain,) = network.predict_sources(find_pictures([str(pictures / "p0.png")]))
    (turned,) = network.predict_sources(find_pictures([str(pictures / "inverted.png")]), invert=True)
    assert turned.activations == plain.activations


def test_standard_input(network, pictures, monkeypatch):
    class Input:
        buffer = io.BytesIO((pictures / "p0.png").read_bytes())

    monkeypatch.setattr(sys, "stdin", Input())
    (seen,) = network.predict_sources(find_pictures(["-"]))
    (same,) = network.predict_sources(find_pictures([str(pictures / "p0.png")]))
    assert seen.name == "standard input"
    assert seen.activations == same.activations
    monkeypatch.setattr(sys, "stdin", None)
    (closed,) = network.predict_sources(find_pictures(["-"]))
    assert "closed" in closed.error


def test_a_network_of_two_labels_says_both(pictures):
    arguments = {"num_classes": 3, "in_channels": 1, "image_size": 16, "routing": "fm"}
    spec = NetworkSpec("resnet-caps-small", arguments, tuple("abc"), Preparation((16, 16), (16, 16)), "none", 2)
    (seen,) = Network(spec).eval().predict_sources(find_pictures([str(pictures / "p0.png")]))
    ranked = sorted(seen.activations, key=lambda name: -seen.activations[name])
    assert seen.labels == tuple(ranked[:2])


def test_anything_that_is_a_picture_is_predicted(network, pictures):
    path = pictures / "p0.png"
    one = network.predict(path)
    image = torch.from_numpy(np.asarray(Image.open(path)).copy())[None]
    for same in (str(path), path.read_bytes(), Image.open(path), image, image.float() / 255):
        again = network.predict(same)
        assert (again.label, again.labels) == (one.label, one.labels)
        assert again.activations == pytest.approx(one.activations)
    assert (one.name, one.error) == (str(path), "")
    assert one.label == max(one.activations, key=one.activations.__getitem__)
    assert (one.certainty, one.activation) == (one.certainties[one.label], one.activations[one.label])
    assert sum(one.certainties.values()) == pytest.approx(1)
    assert str(one) == f"{one.label} ({100 * one.certainty:.1f} %)"


def test_several_pictures_give_a_list(network, pictures):
    paths = [pictures / f"p{number}.png" for number in range(3)]
    one_by_one = [network.predict(path) for path in paths]
    images = torch.stack([torch.from_numpy(np.asarray(Image.open(path)).copy())[None] for path in paths])
    for many in (pictures, paths, tuple(map(str, paths)), images, [images[0] / 255, paths[1], Image.open(paths[2])]):
        predictions = network.predict(many)
        assert [each.labels for each in predictions] == [each.labels for each in one_by_one]
        assert [each.activation for each in predictions] == pytest.approx([each.activation for each in one_by_one])
    assert network.predict([]) == []
    assert len(network.predict([pictures])) == 3


def test_what_is_no_picture_is_refused(network, pictures):
    with pytest.raises(DataError, match=r"nowhere.png: cannot read"):
        network.predict(pictures / "nowhere.png")
    with pytest.raises(DataError, match=r"notes.txt: not a PNG"):
        network.predict([pictures / "p0.png", pictures / "notes.txt"])
    with pytest.raises(TypeError, match="a path, bytes, an image of Pillow or a tensor, or a list of them, got int"):
        network.predict(7)
    with pytest.raises(TypeError, match=r"images must be a tensor, got str; predict\(...\) takes picture files"):
        network.classify("p0.png")
    (pictures / "cut.png").write_bytes((pictures / "p0.png").read_bytes()[:200])
    with Image.open(pictures / "cut.png") as cut, pytest.raises(DataError, match=r"cut.png: damaged picture"):
        network.predict(cut)
    with pytest.raises(ValueError, match=r"\(C, H, W\) or \(B, C, H, W\), got \(16, 16\)"):
        network.predict(torch.rand(16, 16))


def test_a_prediction_leaves_the_network_as_it_was(pictures):
    network = Network(spec(Preparation((16, 16), (16, 16)))).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.predict(pictures)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize(
    ("kind", "routing", "expected"),
    [
        (None, "fm", "softmax"),
        (None, "dynamic", "activation"),
        ("activation", "fm", "activation"),
        ("softmax", "fm", "softmax"),
    ],
)
def test_certainties_lie_between_0_and_1(kind, routing, expected):
    arguments = {"num_classes": 3, "in_channels": 1, "image_size": 16, "routing": routing}
    preparation = Preparation((16, 16), (16, 16))
    network = Network(NetworkSpec("resnet-caps-small", arguments, tuple("abc"), preparation, certainty=kind))
    activation = torch.tensor([[-0.5, 0.25, 3.0]])
    by_kind = {"softmax": activation.softmax(-1), "activation": torch.tensor([[0.0, 0.25, 1.0]])}
    torch.testing.assert_close(network.certainty(activation), by_kind[expected])


# --- fitting of pictures ---------------------------------------------------------------------------------------------


def wide_picture(folder: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 40), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "wide.png")
    return folder / "wide.png"


def network_of(fitting):
    torch.manual_seed(0)
    return Network(spec(Preparation((16, 16), (16, 16), fitting=fitting))).eval()


def test_a_picture_is_fitted_as_in_the_training(tmp_path):
    # earlier, a network trained on cropped pictures was given padded ones, and was wrong half of the time
    picture = wide_picture(tmp_path)
    seen = {fit: network_of(Fitting(fit)).predict(picture).activations for fit in ("crop", "pad", "stretch")}
    assert seen["crop"] != seen["pad"] != seen["stretch"]
    for fit, activations in seen.items():
        assert network_of(Fitting("pad")).predict(picture, fit=fit).activations == activations
    middle = torch.from_numpy(np.asarray(Image.open(picture)).copy())[None, :, 12:28]
    assert network_of(Fitting("crop")).predict(middle).activations == pytest.approx(seen["crop"])


def test_a_network_whose_fitting_is_unknown_says_so_once(tmp_path, recwarn):
    picture, network = wide_picture(tmp_path), network_of(None)
    padded = network_of(Fitting("pad")).predict(picture).activations
    assert network.predict(picture).activations == network.predict(picture).activations == padded
    (said,) = [str(each.message) for each in recwarn]
    assert "with classes a, b, c do not say how its pictures were fitted: they are padded here; predict" in said
    recwarn.clear()
    network_of(None).predict(picture, fit="crop")
    assert not recwarn.list, "who says how has nothing to be told"


def test_a_network_of_light_digits_inverts_dark_ink_on_paper(tmp_path):
    light = Image.new("L", (16, 16), 0)
    light.paste(255, (6, 3, 9, 13))
    dark = ImageOps.invert(light)
    network = network_of(Fitting(invert="light"))
    expected = network.predict(light).activations
    assert network.predict(dark).activations == expected
    assert network.predict(dark, invert=False).activations != expected
    assert network.predict(light, invert=True).activations == network.predict(dark, invert=False).activations
    assert network_of(Fitting()).predict(dark).activations != expected, "others take a picture as it is"


def test_channels_of_the_preparation_are_those_of_the_model():
    with pytest.raises(ValueError, match="images of 3 channels for a model of 1"):
        spec(Preparation((16, 16), (16, 16), channels=3))
