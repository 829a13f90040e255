import io
import sys

import pytest
import torch
from PIL import Image

from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.predict import find_pictures, predict_pictures


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
    from numpy import asarray

    (seen,) = predict_pictures(network, find_pictures([str(pictures / "p0.png")]))
    image = torch.from_numpy(asarray(Image.open(pictures / "p0.png")).copy())[None, None]
    expected = network(image).activation[0]
    assert list(seen.activations.values()) == pytest.approx(expected.tolist(), rel=1e-5)
    assert seen.labels == ("abc"[int(expected.argmax())],)


def test_a_folder_gives_its_pictures_and_passes_over_the_rest(network, pictures):
    seen = list(predict_pictures(network, find_pictures([str(pictures)])))
    assert [entry.name for entry in seen] == [str(pictures / f"p{number}.png") for number in range(3)]
    assert all(entry.labels for entry in seen)


def test_a_bad_one_does_not_stop_the_others(network, pictures):
    places = [pictures / "nowhere.png", pictures / "p1.png", pictures / "notes.txt", pictures / "p2.png"]
    seen = list(predict_pictures(network, find_pictures(map(str, places))))
    assert [bool(entry.error) for entry in seen] == [True, False, True, False]
    assert "nowhere.png" in seen[0].error
    assert "not a PNG, JPEG, BMP or WebP picture" in seen[2].error
    assert not seen[0].labels


def test_an_empty_folder_is_an_error(network, tmp_path):
    (seen,) = predict_pictures(network, find_pictures([str(tmp_path)]))
    assert "no picture in this folder" in seen.error


def test_more_than_one_group(network, pictures):
    many = [str(pictures / "p0.png")] * 150
    assert len({entry.labels for entry in predict_pictures(network, find_pictures(many))}) == 1


def test_dark_on_light_can_be_inverted(network, pictures):
    from PIL import ImageOps

    ImageOps.invert(Image.open(pictures / "p0.png")).save(pictures / "inverted.png")
    (plain,) = predict_pictures(network, find_pictures([str(pictures / "p0.png")]))
    (turned,) = predict_pictures(network, find_pictures([str(pictures / "inverted.png")]), invert=True)
    assert turned.activations == plain.activations


def test_standard_input(network, pictures, monkeypatch):
    class Input:
        buffer = io.BytesIO((pictures / "p0.png").read_bytes())

    monkeypatch.setattr(sys, "stdin", Input())
    (seen,) = predict_pictures(network, find_pictures(["-"]))
    (same,) = predict_pictures(network, find_pictures([str(pictures / "p0.png")]))
    assert seen.name == "standard input"
    assert seen.activations == same.activations
    monkeypatch.setattr(sys, "stdin", None)
    (closed,) = predict_pictures(network, find_pictures(["-"]))
    assert "closed" in closed.error


def test_a_network_of_two_labels_says_both(pictures):
    arguments = {"num_classes": 3, "in_channels": 1, "image_size": 16, "routing": "fm"}
    spec = NetworkSpec("resnet-caps-small", arguments, tuple("abc"), Preparation((16, 16), (16, 16)), "none", 2)
    (seen,) = predict_pictures(Network(spec).eval(), find_pictures([str(pictures / "p0.png")]))
    ranked = sorted(seen.activations, key=lambda name: -seen.activations[name])
    assert seen.labels == tuple(ranked[:2])
