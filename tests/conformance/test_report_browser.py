"""The HTML report in a browser: readable in light and dark, by keyboard, without a request or a complaint."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from rlmesh_trio.conformance.reports.html import html_text
from tests.conformance.chromium import Browser, chromium, open_browser
from tests.conformance.outcomes import material

pytestmark = pytest.mark.skipif(chromium() is None, reason="needs Chromium (Debian: apt-get install chromium)")

# The lowest contrast of any text with what is behind it, by the formula of WCAG 2.
CONTRAST = """
(() => {
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = parts(color).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      const alpha = parts(color)[3];
      if (alpha === undefined || alpha > 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  let worst = { ratio: 99, text: "" };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.tagName === "SCRIPT") continue;
    const [one, other] = [light(getComputedStyle(node).color), light(behind(node))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < worst.ratio) worst = { ratio, text: node.className + ": " + node.textContent.slice(0, 40) };
  }
  return worst;
})()
"""
SHOWN = "[...document.querySelectorAll('section.check')].filter(one => one.checkVisibility()).map(one => one.id)"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("html") / "report.html"
    path.write_text(html_text(material()))
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_readable(browser: Browser, report: Path, dark: bool) -> None:
    browser.open(report, dark=dark)
    red, *_ = map(int, browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)"))
    assert red < 40 if dark else red > 240
    worst: dict[str, Any] = browser.evaluate(CONTRAST)
    assert worst["ratio"] >= 4.5, worst
    assert len(browser.screenshot()) > 20_000, "something is drawn"


@pytest.mark.parametrize("width", [380, 1300])
def test_the_page_is_never_wider_than_the_window(browser: Browser, report: Path, width: int) -> None:
    browser.open(report, width=width)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    values = "[...document.querySelectorAll('.sides dl')].filter(one => one.checkVisibility())"
    assert browser.evaluate(f"Math.min(...{values}.map(one => one.clientWidth))") >= 200, "values keep their room"


def test_it_asks_for_nothing_and_complains_of_nothing(browser: Browser, report: Path) -> None:
    browser.requests.clear()
    browser.open(report)
    assert set(browser.requests) == {report.as_uri()}
    assert browser.complaints == []


def test_links_lead_to_their_places(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.evaluate("document.querySelector('.matrix a[href=\"#lanes.solo-equal--2\"]').click()")
    assert browser.evaluate("location.hash") == "#lanes.solo-equal--2"
    top = browser.evaluate("document.getElementById('lanes.solo-equal--2').getBoundingClientRect().top")
    assert 0 <= top < 200
    assert browser.evaluate("document.querySelector(':target').id") == "lanes.solo-equal--2"


def test_keys_go_from_finding_to_finding_and_around(browser: Browser, report: Path) -> None:
    browser.open(report)
    seen: list[str] = []
    for key in ("n", "n", "p", "p"):
        browser.press(key)
        seen.append(browser.evaluate("location.hash"))
    first, second = "#space.member-accepted--1", "#seed.history-independent--1"
    assert seen == [first, second, first, "#wire.large--1"]


def test_what_is_folded_opens_by_keyboard(browser: Browser, report: Path) -> None:
    browser.open(report)
    raw = "document.querySelector('#seed\\\\.history-independent details')"
    assert browser.evaluate(f"{raw}.open") is False
    browser.evaluate(f"{raw}.querySelector('summary').focus()")
    browser.press("Enter")
    assert browser.evaluate(f"{raw}.open") is True


def test_the_first_stop_of_the_keyboard_leads_past_the_contents(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    browser.press("Enter")
    assert browser.evaluate("location.hash") == "#matrix"


def test_what_is_fine_can_be_put_away(browser: Browser, report: Path) -> None:
    browser.open(report)
    assert "contract.handshake" in browser.evaluate(SHOWN)
    browser.evaluate("document.getElementById('only').click()")
    assert browser.evaluate(SHOWN) == [
        "space.member-accepted",
        "seed.history-independent",
        "lanes.solo-equal",
        "life.step-needs-reset",
        "wire.large",
    ]
