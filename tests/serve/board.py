"""What a hand does on the page, and what an eye sees there."""


def stroke(page, points):
    box = page.locator("#pad").bounding_box()
    place = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*place[0])
    page.mouse.down()
    for point in place[1:]:
        page.mouse.move(*point, steps=4)
    page.mouse.up()


SEVEN = [(0.3, 0.3), (0.65, 0.3), (0.45, 0.75)]
EMPTY = ["scaleX(0)"] * 10


def bars(page):
    """Lengths of all bars; the numbers beside them are too coarse to tell two answers apart."""
    return page.evaluate("() => [...document.querySelectorAll('#bars .fill')].map(e => e.style.transform)")


def quiet(page):
    """Wait until nothing is asked any more."""
    page.wait_for_function("() => document.getElementById('says').getAttribute('aria-busy') !== 'true'")


def answered(page, before):
    """Wait until the bars are other than they were, and stay so."""
    page.wait_for_function(
        "before => [...document.querySelectorAll('#bars .fill')].map(e => e.style.transform).join() !== before",
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
