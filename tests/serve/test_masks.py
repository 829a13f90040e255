"""Networks with masks behind the page: the answer, and the overlay while one draws."""

import base64
import io

import numpy as np
import pytest
import torch
from explain.small import saved, small_network
from PIL import Image
from serve.pictures import as_file, seven
from serve.test_page import answered, bars, stroke

from paircaps.bench.serve import running
from paircaps.serve.networks import Networks


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("segmenting")
    masks = small_network(model="caps-segment", size=36, decoder="none", labels=2)
    with torch.no_grad():
        masks.model.read.bias.copy_(torch.linspace(-1, 2, 40))  # the last classes are nearly everywhere
    twin = small_network(model="unet-twin", size=36, decoder="none", labels=2)
    networks = {"masks": masks, "twin": twin, "mute": small_network(decoder="none")}
    return {name: saved(place / name, network) for name, network in networks.items()}


@pytest.fixture(scope="module")
def networks(folders):
    return Networks(folders)


def test_networks_say_whether_they_give_masks(networks):
    assert [(facts.name, facts.segments, facts.routing) for facts in networks.facts] == [
        ("masks", True, "fm"),
        ("twin", True, None),
        ("mute", False, "fm"),
    ]


def test_an_answer_has_the_masks_of_the_predicted_classes_in_colours(networks):
    answer = networks.predict(as_file(seven()), "masks", None, None, None, False)
    overlay = answer.masks
    assert overlay.classes == answer.classes
    assert overlay.colours == ["#ff9628", "#288cff"]
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(overlay.picture.partition(",")[2]))))
    assert picture.shape == (36, 36, 4)
    network = networks["masks"].network
    seen = torch.from_numpy(np.asarray(Image.open(io.BytesIO(base64.b64decode(answer.seen.partition(",")[2])))).copy())
    logits = network.segment(seen[None, None]).masks[0]
    first, second = ((logits[network.classes.index(name)] > 0).numpy() for name in overlay.classes)
    assert ((picture[..., 3] == 255) == (first | second)).all()
    assert (picture[first & ~second][:, :3] == (255, 150, 40)).all()
    assert (picture[second & ~first][:, :3] == (40, 140, 255)).all()


def test_other_networks_have_no_masks(networks):
    assert networks.predict(as_file(seven()), "mute", None, None, None, False).masks is None


def test_the_page_lays_the_masks_over_the_drawing(browser, folders):
    threads = torch.get_num_threads()
    with running(folders) as port:
        page = browser.new_page()
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"http://127.0.0.1:{port}/#masks")
        page.wait_for_selector("#bars button")
        assert page.inner_text("#invitation") == "draw two digits\nover each other"
        assert page.inner_text("#map-label").strip() == "show masks"
        before = bars(page)
        stroke(page, [(0.3, 0.3), (0.65, 0.3), (0.45, 0.75)])
        answered(page, before)
        assert "orange the pixels of" in page.inner_text("#map-note")
        assert covered(page) > 0
        page.uncheck("#show-map")
        assert covered(page) == 0
        page.check("#show-map")
        page.click("#clear")
        page.wait_for_function("() => document.getElementById('map-note').textContent === ''")
        assert covered(page) == 0
        page.close()
    torch.set_num_threads(threads)
    assert complaints == []


def covered(page):
    """Number of pixels of the overlay that are not transparent."""
    return page.evaluate(
        """() => {
            const map = document.getElementById("map");
            const { data } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
            return data.filter((value, place) => place % 4 === 3 && value).length;
        }"""
    )
