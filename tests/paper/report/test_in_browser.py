"""The report as somebody sees it: on a laptop, on a narrow screen, on paper."""

import pytest
from paper.results import finished

from paircaps.paper.records import NOT_RUN
from paircaps.paper.report import write_report

CLIPPED = """() => [...document.querySelectorAll("td, th, p, li, h2, figcaption")]
    .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")
    .map(e => e.textContent.slice(0, 60))"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of results with everything that makes a page wide: many seeds, stand-ins, long reasons."""
    tmp_path = tmp_path_factory.mktemp("results")
    for seed in range(3):
        for variant in ("fm", "dynamic", "em", "pool"):
            finished(tmp_path, "table3", "affine-mnist", variant, seed, 0.9 + 0.01 * seed)
            finished(tmp_path, "table2", "fashion-mnist", variant, seed, 0.9, plain_accuracy=0.89)
        finished(tmp_path, "fig4", "cifar10", "fm", seed, 0.5)
    failed = tmp_path / "runs/table2/cifar10/em/seed-0"
    failed.mkdir(parents=True)
    (failed / NOT_RUN).write_text("stopped before step 12,345 changed any weight: the loss is nan. " * 2)
    return write_report(tmp_path)[0]


@pytest.mark.parametrize("width", [1366, 1100])
def test_a_laptop_shows_all_of_it(browser, report, width):
    page = browser.new_page(viewport={"width": width, "height": 768})
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CLIPPED) == []
    scrolling = "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert page.evaluate(scrolling) == 0, "no table has to be moved to be read"
    broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert page.evaluate(broken) == 0
    assert page.locator("img").count() == 1
    page.close()


def test_a_narrow_screen_scrolls_a_table_and_not_the_page(browser, report):
    page = browser.new_page(viewport={"width": 420, "height": 800})
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    page.close()


def test_on_paper_nothing_hangs_over_the_edge(browser, report):
    page = browser.new_page(viewport={"width": 1031, "height": 700})  # A4 on its side, less its margins
    page.goto(report.as_uri())
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1031
    assert page.evaluate(CLIPPED) == []
    page.close()


def test_every_empty_cell_says_why(browser, report):
    page = browser.new_page()
    page.goto(report.as_uri())
    bare = "[...document.querySelectorAll('td')].filter(e => ['', '–'].includes(e.textContent.trim())).length"
    assert page.evaluate(bare) == 0
    page.close()
