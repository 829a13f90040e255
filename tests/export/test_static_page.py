"""The page without a server in a real browser that reaches nothing but the page's own web server."""

import base64
import functools
import http.server
import threading

import numpy as np
import pytest
from PIL import Image, ImageOps
from serve.board import EMPTY, SEVEN, answered, bars, drawn, move, quiet, stroke
from serve.pictures import as_file, cut_out, seven, sixteen_bit, turned_by_exif

import paircaps
from paircaps.explain import agreement
from paircaps.pictures import Fitting, PictureSource, decode_fitted


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(exported):
    """Address of the page below the root of a plain web server."""
    handler = functools.partial(Quiet, directory=exported.place.parents[1])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/some%20where/page/"
        server.shutdown()


@pytest.fixture
def open_page(browser, address):
    """A page that must not say anything on its console, nor ask anybody but its own folder."""
    context, complaints = browser.new_context(), []

    def open_page(name="", prepare=lambda page: None, loaded="#bars button"):
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.complaints = complaints
        page.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        context.route(lambda url: not url.startswith((address, "data:", "blob:")), refuse)
        prepare(page)
        page.goto(f"{address}#{name}")
        page.wait_for_selector(loaded)
        return page

    def refuse(route):
        complaints.append(route.request.url)
        route.abort()

    yield open_page
    context.close()
    assert complaints == []


def test_drawing_sliders_and_classes_work_without_a_server(open_page):
    page = open_page()
    assert bars(page) == EMPTY
    clean = page.evaluate("() => document.getElementById('map').toDataURL()")
    stroke(page, SEVEN[:2])
    first = answered(page, EMPTY)
    stroke(page, SEVEN[1:])
    second = answered(page, first)
    assert page.evaluate("() => document.getElementById('map').toDataURL()") != clean, "agreement over the drawing"
    # a slider
    own = drawn(page)
    assert own.startswith("data:image/png")
    assert "change most come first" in page.locator("#pose-note").inner_text(), "measured when the page was written"
    move(page.locator("#sliders input").first, 1.0)
    page.wait_for_function("own => document.getElementById('reconstruction').src !== own", arg=own)
    page.locator("#reset").click()
    assert drawn(page) == own
    # another class
    states = [bar.get_attribute("aria-pressed") for bar in page.locator("#bars button").all()]
    other = (states.index("true") + 3) % 10
    page.locator("#bars button").nth(other).click()
    page.wait_for_function("other => document.getElementById('pose-note').innerText.includes(other)", arg=f"of {other}")
    assert drawn(page) != own
    assert bars(page) == second
    assert "Interface for programs" not in page.inner_text("body")
    assert "leaves this browser" in page.inner_text("footer")


def test_networks_are_switched_compared_and_saved(open_page):
    page = open_page()
    stroke(page, SEVEN)
    answered(page, EMPTY)
    page.wait_for_function("() => document.querySelectorAll('#others .value:not(:empty)').length === 2")
    page.locator("#models label", has_text="colour").click()
    page.wait_for_function("() => document.querySelectorAll('#bars button').length === 3")
    answered(page, EMPTY[:3])
    with page.expect_download() as saved:
        page.locator("#save").click()
    assert saved.value.suggested_filename.startswith("paircaps-colour-")
    page.locator("#models label", has_text="masks").click()
    answered(page, EMPTY)
    assert "The masks" in page.locator("#map-note").inner_text()
    page.reload()
    page.wait_for_selector("#bars button")
    assert page.locator("#models input:checked").get_attribute("value") == "masks"


def test_a_picture_is_taken_as_python_takes_it(open_page, page_networks, tmp_path):
    page = open_page("fm")
    paper = ImageOps.expand(seven(120).convert("RGB").resize((170, 90)), 7, "navy").point(lambda value: 255 - value)
    (tmp_path / "paper.png").write_bytes(as_file(paper))
    page.set_input_files("#file", tmp_path / "paper.png")
    answered(page, EMPTY)
    expected = paircaps.load(page_networks["fm"]).predict(tmp_path / "paper.png")
    lengths = [float(length.removeprefix("scaleX(").rstrip(")")) for length in bars(page)]
    assert lengths == pytest.approx(list(expected.certainties.values()), abs=1e-5)
    for name in page_networks:
        asked = [base64.b64encode((tmp_path / "paper.png").read_bytes()).decode(), name]
        network, answer = paircaps.load(page_networks[name]), page.evaluate(PREDICT, asked)
        in_python = network.predict(tmp_path / "paper.png")
        assert answer["activations"] == pytest.approx(in_python.activations, rel=1e-4, abs=1e-6)
        if answer["agreement"]:
            image = network.read_picture(PictureSource("paper", (tmp_path / "paper.png").read_bytes)).image
            shares = agreement(network, image[None], network.classes.index(answer["looked_at"])).map[0]
            assert np.array(answer["agreement"]["shares"]) == pytest.approx(shares.numpy(), rel=1e-3, abs=1e-6)
        assert (answer["agreement"] is None) == (name == "masks")
    assert page.locator("#invert").is_checked(), "dark on light is inverted"
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"only text"})
    page.wait_for_selector("#problem:not([hidden])")
    assert "not a PNG, JPEG, BMP or WebP picture" in page.locator("#problem").inner_text()


PREDICT = """async ([content, name]) => {
    const answers = await import("./answers.js");
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    const model = (await answers.models()).models.find((one) => one.name === name);
    const asked = { model, picture: new Blob([bytes]), label: null, invert: null, compare: false };
    return await answers.predict(asked);
}"""

PREPARE = """async ([content, model, invert]) => {
    const { prepare } = await import("./prepare.js");
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes]), { colorSpaceConversion: "none" });
    const { picture, inverted } = prepare(bitmap, model, invert);
    return [Array.from(picture.data), inverted];
}"""


def noise(width, height, mode="RGB"):
    generator = np.random.default_rng(width)
    small = generator.integers(0, 256, (height // 5, width // 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def sheer(width, height):
    picture = noise(width, height, "RGBA")
    picture.putalpha(noise(width + 5, height, "L").crop((0, 0, width, height)))
    return picture


SENT = {
    "grey": (as_file(noise(170, 90, "L")), 1),
    "colour": (as_file(noise(65, 205)), 1),
    "small": (as_file(noise(15, 20)), 1),
    "light": (as_file(noise(90, 90).point(lambda value: 128 + value // 2)), 1),
    "large": (as_file(noise(1500, 900)), 1),
    "transparent": (as_file(sheer(90, 120)), 2),
    "cut out": (cut_out(), 1),
    "sixteen bits": (sixteen_bit(), 1),
    "turned": (turned_by_exif(), 2),
}
"""Pictures as they are sent, and by how much a byte may differ from Pillow's, which resizes rows or columns first."""


def test_pictures_are_prepared_as_pillow_does_it(open_page):
    page = open_page()
    different = {}
    for name, (content, most) in SENT.items():
        for fit, channels, background, invert in (
            ("pad", 1, 0, "light"),
            ("crop", 3, 255, "never"),
            ("stretch", 1, 200, "always"),
        ):
            facts = {"width": 28, "height": 33, "channels": channels, "fit": fit, "background": background}
            asked = [base64.b64encode(content).decode(), facts | {"invert": invert}, None]
            pixels, inverted = page.evaluate(PREPARE, asked)
            expected = decode_fitted(content, name, (33, 28), channels, Fitting(fit, background, invert))
            assert inverted == expected.inverted, (name, fit)
            ours = np.array(pixels).reshape(33, 28, channels).transpose(2, 0, 1)
            difference = int(np.abs(ours - expected.image.numpy().astype(int)).max())
            if difference > most:
                different[name, fit] = difference
    assert different == {}


def test_a_page_opened_as_a_file_says_how_to_serve_it(open_page, browser, exported):
    page = browser.new_page()
    page.goto(f"file://{exported.place}/index.html")
    page.wait_for_function("() => getComputedStyle(document.getElementById('not-started')).visibility === 'visible'")
    assert "python -m http.server" in page.inner_text("#not-started")
    assert not page.locator("main").is_visible()
    page.close()


def without(pattern):
    return lambda page: page.route(pattern, lambda route: route.fulfill(status=404, body="no"))


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (without("**/models.json"), "models.json is missing on the web server"),
        (without("**/worker.js"), "worker.js could not be loaded"),
        (without("**/onnxruntime/ort.js"), "onnxruntime/ort.js could not be loaded"),
        (without("**/onnxruntime/ort-wasm.wasm"), "ort-wasm.wasm is missing on the web server"),
        (without("**/networks/fm-network-*"), "is missing on the web server"),
        (lambda page: page.add_init_script("delete globalThis.WebAssembly"), "no WebAssembly"),
    ],
    ids=["list", "worker", "runtime", "binary", "network", "WebAssembly"],
)
def test_what_is_missing_is_told_in_a_sentence(open_page, prepare, words):
    page = open_page(prepare=prepare, loaded="body")
    page.wait_for_function("() => document.querySelector('#bars button, #problem:not([hidden])')")
    page.keyboard.press("7")
    page.wait_for_selector("#problem:not([hidden])")
    assert words in page.locator("#problem").inner_text()
    assert page.locator("#verdict").inner_text() == "nothing yet"
    page.complaints.clear()  # a browser reports every file that is missing itself


def test_a_network_that_was_missing_is_asked_for_again(open_page):
    page = open_page(prepare=without("**/networks/fm-network-*"))
    page.keyboard.press("7")
    page.wait_for_selector("#problem:not([hidden])")
    page.unroute_all(behavior="wait")
    stroke(page, SEVEN)
    answered(page, EMPTY)
    quiet(page)
    assert page.locator("#problem").is_hidden()
    page.complaints.clear()
