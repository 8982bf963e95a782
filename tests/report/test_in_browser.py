"""The page in a real browser: no request, no message, no overflow on a phone, text that can be read in the dark."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distkern.cli.main import main
from tests.chromium import FLAGS
from tests.markers import variants

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="chromium and chromedriver are not installed"),
]

LEAST_CONTRAST = 4.5
"""Of text against what is behind it, as WCAG 2.2 AA asks for."""

# Every text of the page with the colours that are blended behind it, whatever element paints them.
CONTRASTS = r"""
const parse = text => {
  const found = text.match(/[\d.]+/g).map(Number);
  return {rgb: found.slice(0, 3), alpha: found.length > 3 ? found[3] : 1};
};
const over = (top, below) => top.rgb.map((c, i) => c * top.alpha + below[i] * (1 - top.alpha));
const light = rgb => {
  const [r, g, b] = rgb.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = element => {
  const chain = [];
  for (let e = element; e; e = e.parentElement) chain.unshift(e);
  let colour = [255, 255, 255];
  for (const e of chain) {
    colour = over(parse(getComputedStyle(e).backgroundColor), colour);
    const before = getComputedStyle(e, "::before");
    if (before.content !== "none" && before.position === "absolute") {
      const paint = parse(before.backgroundColor);
      colour = over({rgb: paint.rgb, alpha: paint.alpha * Number(before.opacity)}, colour);
    }
  }
  return colour;
};
const results = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const element = node.parentElement;
  const svg = element instanceof SVGElement;
  if (!node.data.trim() || ["title", "desc"].includes(element.tagName) || element.closest(".hidden")) continue;
  if (!element.getClientRects().length) continue;
  const style = getComputedStyle(element);
  const colour = parse(svg ? style.fill : style.color);
  const back = behind(svg ? element.ownerSVGElement.parentElement : element);
  const [a, b] = [light(over(colour, back)), light(back)].sort((x, y) => y - x);
  results.push([(a + 0.05) / (b + 0.05), node.data.trim().slice(0, 40)]);
}
return results;
"""

OVERFLOWING = """
return [...document.body.querySelectorAll("*")].filter(e => {
  if (e.closest(".scroll, .hidden") && !e.matches(".scroll")) return false;
  const box = e.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map(e => e.outerHTML.slice(0, 80));
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(str(DRIVER))
    chrome = webdriver.Chrome(options=options, service=service)
    yield chrome
    chrome.quit()


Visit = Callable[..., Any]


@pytest.fixture
def visit(driver: Any) -> Visit:
    """Opens a file as on a screen of some width, light or dark, with everything that can be unfolded unfolded."""

    def open_file(path: Path, width: int = 1200, *, dark: bool = False, media: str = "screen") -> Any:
        driver.get("about:blank")
        for kind in ("browser", "performance"):
            driver.get_log(kind)
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})
        driver.get(path.as_uri())
        driver.execute_script("document.querySelectorAll('details').forEach(e => e.open = true)")
        return driver

    return open_file


@pytest.fixture(scope="module", params=["digits", "waves"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a classifier of images, and one of a regression."""
    run: Path = request.getfixturevalue(request.param) / "it.run"
    out: Path = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["report", "-q", str(run), "--out", str(out)]) == 0
    return out


def requests(driver: Any) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith("data:")]


def test_the_page_makes_no_request_and_logs_no_message(visit: Visit, page: Path) -> None:
    driver = visit(page)
    assert requests(driver) == [page.as_uri()]
    assert driver.get_log("browser") == []
    assert page.stat().st_size < 5_000_000
    assert "distkern" in driver.title
    broken = driver.execute_script(
        "return [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.alt)"
    )
    assert broken == []


def test_the_check_of_requests_can_fail(visit: Visit, tmp_path: Path) -> None:
    other = tmp_path / "other.html"
    other.write_text("<!doctype html><link rel=icon href=data:,><img src=missing.png><script>throw 1</script>")
    driver = visit(other)
    assert requests(driver) == [other.as_uri(), (tmp_path / "missing.png").as_uri()]
    assert len(driver.get_log("browser")) == 2


@pytest.mark.parametrize(
    ("width", "dark"),
    variants([(320, True), (1200, False)], itertools.product([320, 390, 768, 1200], [False, True])),
)
def test_the_page_fits_its_window(visit: Visit, page: Path, width: int, dark: bool) -> None:
    driver = visit(page, width, dark=dark)
    needed, given = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert given == width
    assert needed <= width
    assert driver.execute_script(OVERFLOWING) == []
    # Text of drawings is not scaled away.
    smallest = driver.execute_script(
        "return Math.min(...[...document.querySelectorAll('svg text')].map(t => "
        "parseFloat(getComputedStyle(t).fontSize) * t.ownerSVGElement.getBoundingClientRect().width "
        "/ t.ownerSVGElement.viewBox.baseVal.width))"
    )
    assert smallest > 7.0


@pytest.mark.parametrize(
    ("media", "dark"),
    variants([("screen", True), ("print", False)], itertools.product(["screen", "print"], [False, True])),
)
def test_all_text_can_be_read(visit: Visit, page: Path, dark: bool, media: str) -> None:
    driver = visit(page, 1000, dark=dark, media=media)
    found = driver.execute_script(CONTRASTS)
    assert len(found) > 100
    assert [item for item in found if item[0] < LEAST_CONTRAST] == []
    paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (not dark or media == "print")


def test_the_check_of_contrast_can_fail(visit: Visit, tmp_path: Path) -> None:
    other = tmp_path / "other.html"
    other.write_text('<!doctype html><body style="background:#fff"><p style="color:#999">pale</p><p>dark</p>')
    found = visit(other).execute_script(CONTRASTS)
    assert [text for ratio, text in found if ratio < LEAST_CONTRAST] == ["pale"]


def test_parts_have_names_for_screen_readers(visit: Visit, page: Path) -> None:
    driver = visit(page)
    nameless = driver.execute_script(
        "return [...document.querySelectorAll('svg[role=img], img, [role=region]')].filter(e => "
        "!(e.getAttribute('aria-label') || e.getAttribute('alt'))).length"
    )
    assert nameless == 0
    levels = driver.execute_script(
        "return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
