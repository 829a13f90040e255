"""The page in a real browser: draw, look, move, upload, switch."""

import pytest
from PIL import Image, ImageOps
from serve.pictures import as_file, seven

import paircaps


@pytest.fixture
def open_page(browser, port):
    """A page that must not say anything on its console, nor ask anybody but us."""
    contexts, complaints = [], []

    def open_page(path="/", **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        own = f"http://127.0.0.1:{port}/"
        known = (own, "data:", "blob:")
        page.on("request", lambda request: request.url.startswith(known) or complaints.append(request.url))
        page.complaints = complaints
        page.goto(own + path.lstrip("/"))
        page.wait_for_selector("#bars button, .docs section table")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def stroke(page, points):
    box = page.locator("#pad").bounding_box()
    place = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*place[0])
    page.mouse.down()
    for point in place[1:]:
        page.mouse.move(*point, steps=4)
    page.mouse.up()


SEVEN = [(0.3, 0.3), (0.65, 0.3), (0.45, 0.75)]


def bars(page):
    return page.locator("#bars .value").all_inner_texts()


def fills(page):
    return [fill.evaluate("e => e.style.transform") for fill in page.locator("#bars .fill").all()]


def quiet(page):
    """Wait until nothing is asked any more."""
    page.wait_for_function("() => document.getElementById('says').getAttribute('aria-busy') !== 'true'")


def answered(page, before):
    """Wait until the bars are other than they were, and stay so."""
    page.wait_for_function(
        "before => [...document.querySelectorAll('#bars .value')].map(e => e.innerText).join() !== before",
        arg=",".join(before),
    )
    quiet(page)
    return bars(page)


def drawn(page):
    return page.locator("#reconstruction").get_attribute("src")


def move(slider, part):
    """Put a slider somewhere between its ends, as a hand would."""
    slider.evaluate(
        """(e, part) => {
            e.value = Number(e.min) + part * (Number(e.max) - Number(e.min));
            e.dispatchEvent(new Event("input", { bubbles: true }));
        }""",
        part,
    )


def test_bars_move_while_drawing_and_the_drawing_is_redrawn(open_page):
    page = open_page()
    assert bars(page) == [""] * 10
    assert page.locator("#invitation").is_visible()
    stroke(page, SEVEN[:2])
    first = answered(page, [""] * 10)
    assert not page.locator("#invitation").is_visible()
    assert drawn(page).startswith("data:image/png")
    assert page.locator("#reconstruction").is_visible()
    old = fills(page)
    stroke(page, SEVEN[1:])
    answered(page, first)
    assert fills(page) != old
    assert "%" in page.locator("#verdict").inner_text()


def test_a_slider_reshapes_the_drawing_and_can_be_taken_back(open_page):
    page = open_page()
    stroke(page, SEVEN)
    answered(page, [""] * 10)
    own = drawn(page)
    sliders = page.locator("#sliders input")
    assert sliders.count() == 16
    assert page.locator("#reset").is_disabled()
    for place in (0, 15):
        before = drawn(page)
        move(sliders.nth(place), 1.0)
        page.wait_for_function("before => document.getElementById('reconstruction').src !== before", arg=before)
    page.locator("#reset").click()
    assert drawn(page) == own
    assert page.locator("#reset").is_disabled()


def test_sliders_obey_the_keyboard(open_page):
    page = open_page()
    stroke(page, SEVEN)
    answered(page, [""] * 10)
    before = drawn(page)
    page.locator("#sliders input").nth(2).focus()
    page.keyboard.press("End")
    page.wait_for_function("before => document.getElementById('reconstruction').src !== before", arg=before)


def test_agreement_is_shown_over_the_drawing_and_can_be_hidden(open_page):
    page = open_page()
    shown = "() => document.getElementById('map').toDataURL()"
    clean = page.evaluate(shown)
    stroke(page, SEVEN)
    answered(page, [""] * 10)
    assert page.evaluate(shown) != clean
    page.locator("#show-map").uncheck()
    assert page.evaluate(shown) == clean


def test_a_class_can_be_looked_at(open_page):
    page = open_page()
    stroke(page, SEVEN)
    answered(page, [""] * 10)
    before = drawn(page)
    states = [bar.get_attribute("aria-pressed") for bar in page.locator("#bars button").all()]
    other = (states.index("true") + 3) % 10
    page.locator("#bars button").nth(other).click()
    page.wait_for_function(
        "place => document.querySelectorAll('#bars button')[place].getAttribute('aria-pressed') === 'true'", arg=other
    )
    assert drawn(page) != before
    assert f"The pose of {other}" in page.locator("#pose-note").inner_text()
    page.keyboard.press("Tab")
    page.locator("#pad").focus()
    page.keyboard.press("Delete")
    page.keyboard.press("1")
    page.wait_for_function("() => document.querySelector('#bars .value').innerText !== ''")
    best = page.locator("#verdict").inner_text().split(" (")[0]
    assert f"The pose of {best}" in page.locator("#pose-note").inner_text(), "a new drawing is looked at anew"


def test_the_first_slider_that_is_moved_stays_where_it_was_put(open_page):
    """Leaving the board used to ask again, and the answer put all sliders back."""
    page = open_page()
    asked = []
    page.on("request", lambda request: request.url.endswith("/api/predict") and asked.append(request.url))
    stroke(page, SEVEN)
    answered(page, [""] * 10)
    page.wait_for_timeout(300)
    count = len(asked)
    slider = page.locator("#sliders input").first
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.wait_for_timeout(400)
    held = slider.input_value()
    page.mouse.up()
    page.wait_for_timeout(400)
    assert slider.input_value() == held
    assert len(asked) == count
    assert page.locator("#reset").is_enabled()


def test_an_answer_of_a_network_that_is_no_longer_chosen_is_dropped(open_page):
    """It was shown under the new name, or broke where the classes differ."""
    page = open_page("/#fm")
    page.route("**/api/predict", lambda route: (page.wait_for_timeout(400), route.continue_()))
    page.keyboard.press("4")
    page.wait_for_timeout(100)
    page.locator("#models label", has_text="colour").click()
    page.wait_for_function("() => document.querySelector('#bars .value').innerText !== ''")
    assert page.locator("#bars button").count() == 3
    assert not page.locator("#problem").is_visible()
    page.unroute_all(behavior="wait")


def test_a_second_finger_does_not_draw(open_page):
    page = open_page()
    page.evaluate(
        """() => {
            const pad = document.getElementById("pad"), box = pad.getBoundingClientRect();
            pad.setPointerCapture = () => {};
            const send = (kind, id, x, y) => pad.dispatchEvent(new PointerEvent(kind, {
                pointerId: id, isPrimary: id === 1, button: 0, bubbles: true,
                clientX: box.left + x * box.width, clientY: box.top + y * box.height }));
            send("pointerdown", 1, 0.2, 0.2); send("pointerdown", 2, 0.8, 0.2);
            send("pointermove", 1, 0.2, 0.5); send("pointermove", 2, 0.8, 0.5);
            send("pointerup", 2, 0.8, 0.5); send("pointermove", 1, 0.2, 0.8); send("pointerup", 1, 0.2, 0.8);
        }"""
    )
    answered(page, [""] * 10)
    right = (
        "([x, y]) => [...document.getElementById('pad').getContext('2d').getImageData(320 * x, 320 * y, 1, 1).data][0]"
    )
    assert page.evaluate(right, [0.2, 0.7]) == 255, "the first finger goes on"
    assert page.evaluate(right, [0.8, 0.35]) == page.evaluate(right, [0.5, 0.35]) == 0


def test_a_picture_is_uploaded_dropped_on_paper_turned_to_ink(open_page):
    page = open_page()
    page.set_input_files("#file", {"name": "seven.png", "mimeType": "image/png", "buffer": as_file(seven())})
    plain = answered(page, [""] * 10)
    assert not page.locator("#invert").is_checked()
    paper = as_file(seven().point(lambda value: 255 - value))
    page.set_input_files("#file", {"name": "paper.png", "mimeType": "image/png", "buffer": paper})
    page.wait_for_function("() => document.getElementById('invert').checked")
    quiet(page)
    assert bars(page) == plain, "dark on light is seen as light on dark"
    page.locator("#invert").uncheck()
    answered(page, plain)


@pytest.mark.parametrize("name", ["fm", "colour", "cropped"])
def test_page_and_interface_and_python_answer_alike(open_page, predict, folders, tmp_path, name):
    # earlier, the page scaled and inverted a picture by itself: it said circle 92 %, the interface square 74 %
    picture = ImageOps.expand(seven(120).convert("RGB").resize((170, 90)), 7, "orange").point(lambda value: 255 - value)
    (tmp_path / "wide.png").write_bytes(as_file(picture))
    page = open_page(f"/#{name}")
    with page.expect_response("**/api/predict") as answered:
        page.set_input_files("#file", tmp_path / "wide.png")
    by_page = answered.value.json()
    _, by_interface = predict((tmp_path / "wide.png").read_bytes(), model=name)
    in_python = paircaps.load(folders[name]).predict(tmp_path / "wide.png")
    for key, value in (("activations", in_python.activations), ("certainty", in_python.certainties)):
        assert by_page[key] == by_interface[key] == pytest.approx(value)
    quiet(page)
    assert page.locator("#invert").is_checked() == by_interface["inverted"]


def test_a_picture_too_large_for_the_server_is_sent_as_the_board_shows_it(open_page, tmp_path):
    Image.effect_noise((1900, 1900), 90).convert("RGB").save(tmp_path / "noise.bmp")  # 11 MB
    page = open_page()
    with page.expect_response(lambda response: response.url.endswith("/api/predict") and response.ok):
        page.set_input_files("#file", tmp_path / "noise.bmp")
    quiet(page)
    assert page.locator("#problem").is_hidden()
    assert page.locator("#verdict").inner_text() != "nothing yet"


def test_a_file_that_the_browser_cannot_read_but_the_server_can(open_page):
    page = open_page()
    page.evaluate("() => { window.createImageBitmap = () => Promise.reject(new Error('no')); }")
    page.set_input_files("#file", {"name": "seven.bmp", "mimeType": "image/bmp", "buffer": as_file(seven(), "BMP")})
    answered(page, [""] * 10)
    assert not page.locator("#problem").is_visible()
    assert page.locator("#invert-label").is_visible()


def test_undo_brings_back_dark_on_light_with_the_picture(open_page):
    page = open_page()
    paper = as_file(seven().point(lambda value: 255 - value))
    page.set_input_files("#file", {"name": "paper.png", "mimeType": "image/png", "buffer": paper})
    first = answered(page, [""] * 10)
    assert page.locator("#invert").is_checked()
    page.locator("#invert").uncheck()
    second = answered(page, first)
    page.locator("#undo").click()
    assert answered(page, second) == first
    assert page.locator("#invert").is_checked()


def test_the_page_can_be_scrolled_by_keys(open_page):
    page = open_page(viewport={"width": 400, "height": 500})
    page.keyboard.press("Space")
    page.wait_for_function("() => window.scrollY > 50")
    assert page.locator("#verdict").inner_text() == "nothing yet"


def test_a_bad_file_is_refused_in_words_and_the_page_goes_on(open_page):
    page = open_page()
    page.set_input_files("#file", {"name": "notes.png", "mimeType": "image/png", "buffer": b"only text"})
    page.wait_for_selector("#problem:not([hidden])")
    assert "not a PNG, JPEG, BMP or WebP picture" in page.locator("#problem").inner_text()
    page.complaints.clear()  # a browser reports every answer of 400 itself
    stroke(page, SEVEN)
    answered(page, [""] * 10)
    assert not page.locator("#problem").is_visible()


def test_networks_can_be_switched_and_disagree_in_public(open_page):
    page = open_page()
    stroke(page, SEVEN)
    first = answered(page, [""] * 10)
    assert page.locator("#others button").count() == 7
    page.locator("#others button").nth(1).focus()
    stroke(page, SEVEN[::-1])
    quiet(page)
    assert page.locator("#agreed").inner_text()
    page.locator("#models label", has_text="dynamic").click()
    answered(page, first)
    assert page.url.endswith("#dynamic")
    assert "dynamic routing" in page.locator("#facts").inner_text()
    page.locator("#models label", has_text="pool").click()
    page.wait_for_function("() => document.getElementById('map-note').innerText.includes('no capsules')")
    assert page.locator("#sliders input").count() == 16
    page.locator("#models label", has_text="colour").click()
    page.wait_for_function("() => document.querySelectorAll('#bars button').length === 3")
    page.wait_for_function("() => document.querySelector('#bars .value').innerText !== ''")
    page.locator("#models label", has_text="mute").click()
    page.wait_for_function("() => document.getElementById('no-reconstruction').innerText.includes('without a decoder')")


def test_a_broken_address_names_nobody(open_page):
    page = open_page("/#%")
    assert page.locator("#models input:checked").get_attribute("value") == "fm"
    page.evaluate("() => (location.hash = '#em')")
    page.wait_for_function("() => document.querySelector('#models input:checked').value === 'em'")


def test_a_reload_keeps_the_network(open_page):
    page = open_page("/#em")
    page.reload()
    page.wait_for_selector("#bars button")
    assert page.locator("#models input:checked").get_attribute("value") == "em"
    stroke(page, SEVEN)
    answered(page, [""] * 10)


def test_clear_and_undo(open_page):
    page = open_page()
    assert page.locator("#undo").is_disabled()
    page.route("**/api/predict", lambda route: (page.wait_for_timeout(300), route.continue_()))
    stroke(page, SEVEN[:2])
    assert page.locator("#undo").is_enabled(), "before there is an answer"
    page.unroute_all(behavior="wait")
    page.locator("#clear").click()
    stroke(page, SEVEN[:2])
    one = answered(page, [""] * 10)
    stroke(page, SEVEN[1:])
    two = answered(page, one)
    page.locator("#undo").click()
    assert answered(page, two) == one
    page.locator("#clear").click()
    assert answered(page, one) == [""] * 10
    assert page.locator("#verdict").inner_text() == "nothing yet"
    page.locator("#undo").click()
    assert answered(page, [""] * 10) == one


def test_drawing_with_the_keyboard_alone(open_page):
    page = open_page()
    page.locator("#models input:checked").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.id") == "pad"
    page.keyboard.press("Space")
    for _ in range(6):
        page.keyboard.press("ArrowDown")
    line = answered(page, [""] * 10)
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    quiet(page)
    assert bars(page) == line, "a lifted pen does not draw"
    page.keyboard.press("4")
    answered(page, line)
    page.keyboard.press("Delete")
    page.wait_for_function("() => document.querySelector('#bars .value').innerText === ''")
    page.keyboard.press("z")
    answered(page, [""] * 10)


def test_drawing_with_a_finger_on_a_phone(open_page):
    page = open_page(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    box = page.locator("#pad").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    answered(page, [""] * 10)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_sticks_out_and_text_can_be_read(open_page, width, scheme):
    page = open_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    stroke(page, SEVEN)
    answered(page, [""] * 10)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    paper, ink = (
        page.evaluate(f"() => getComputedStyle(document.body).{what}") for what in ("backgroundColor", "color")
    )
    light = [sum(int(part) for part in colour.strip("rgb()").split(",")[:3]) for colour in (paper, ink)]
    assert (light[0] > light[1]) == (scheme == "light")
    assert abs(light[0] - light[1]) > 450


def test_a_server_that_is_gone_is_told(open_page):
    page = open_page()
    page.keyboard.press("5")
    answered(page, [""] * 10)
    page.route("**/api/predict", lambda route: route.abort())
    stroke(page, SEVEN)
    page.wait_for_selector("#problem:not([hidden])")
    assert page.locator("#verdict").inner_text() == "nothing yet", "an old answer does not stay beside a new drawing"
    assert "does not answer" in page.locator("#problem").inner_text()
    page.unroute("**/api/predict")
    stroke(page, SEVEN[::-1])
    answered(page, [""] * 10)
    assert not page.locator("#problem").is_visible()
    # requests that were aborted are expected on the console, the last of them maybe after the next stroke
    page.complaints[:] = [text for text in page.complaints if "ERR_FAILED" not in text]


def test_the_interface_is_described(open_page):
    page = open_page("/docs")
    text = page.inner_text("main")
    for words in (
        "POST /api/predict",
        "GET /api/models",
        "POST /api/draw",
        "multipart/form-data",
        "AgreementMap",
        "413",
    ):
        assert words in text
