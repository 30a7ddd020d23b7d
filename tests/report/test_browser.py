"""The page in a real browser: no errors, names stay text, it fits every screen, and what is printed is complete."""

import base64
import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pypdf import PdfReader

from cvgp.report import Report
from tests.report.conftest import SCRIPT, TARGET, Case, ClassCase

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="needs Chromium and chromedriver (Debian: chromium, chromium-driver)"
)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]


@pytest.fixture(scope="module")
def page(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser with the page open."""
    with browser(case.report, tmp_path_factory) as driver:
        yield driver


@pytest.fixture(scope="module")
def class_page(class_case: ClassCase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser with the page of a classifier open."""
    with browser(class_case.report, tmp_path_factory) as driver:
        yield driver


@contextmanager
def browser(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser that shows a page."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    folder = tmp_path_factory.mktemp("browser")
    report.save(folder / "report.html")
    options = ChromeOptions()
    for flag in [*FLAGS, f"--user-data-dir={folder / 'profile'}"]:
        options.add_argument(flag)
    options.binary_location = str(BROWSER)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(str(DRIVER)))
    driver.get((folder / "report.html").as_uri())
    yield driver
    driver.quit()


def texts(page: Any, selector: str) -> list[str]:
    found: list[str] = page.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )
    return found


def test_the_page_loads_without_a_message_in_the_console(page: Any) -> None:
    assert page.get_log("browser") == []


def test_the_page_of_a_classifier_loads_and_its_labels_stay_text(class_page: Any) -> None:
    assert class_page.get_log("browser") == []
    assert class_page.execute_script("return document.scripts.length + document.images.length") == 0
    assert SCRIPT[:20] in " ".join(texts(class_page, "#confusion th"))
    for width in (390, 1280):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        class_page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert class_page.execute_script("return document.documentElement.scrollWidth") <= width


def test_hostile_names_stay_text(page: Any) -> None:
    assert page.title == f"Report on predictions of {TARGET}"
    assert page.execute_script("return document.scripts.length + document.images.length") == 0
    assert SCRIPT[:20] in " ".join(texts(page, "svg text"))
    assert r"中文 \u202e" in texts(page, "svg text")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen_and_charts_follow_the_color_scheme(
    page: Any, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    paper, ink = page.execute_script(
        "return [getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.querySelector('svg text')).fill]"
    )
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert ink == ("rgb(28, 30, 33)" if scheme == "light" else "rgb(232, 234, 237)")


def test_no_level_label_lies_on_another(page: Any) -> None:
    overlapping = page.execute_script(
        """
        const boxes = svg => [...svg.querySelectorAll('text')].map(t => [t, t.getBoundingClientRect()]);
        const before = (p, q) => p + 2 < q;  // corners of boxes may touch
        const meet = (a, b) => before(a.left, b.right) && before(b.left, a.right)
          && before(a.top, b.bottom) && before(b.top, a.bottom);
        const level = t => !/rotate\\(-?[1-9]/.test(t.getAttribute('transform') || '');
        const found = [];
        for (const svg of document.querySelectorAll('svg')) {
          const all = boxes(svg).filter(([t]) => level(t));
          all.forEach(([s, a], i) => all.slice(i + 1).forEach(([t, b]) => {
            if (meet(a, b)) found.push(s.textContent + ' | ' + t.textContent);
          }));
        }
        return found;
        """
    )
    assert overlapping == []


def test_what_is_printed_is_complete(page: Any) -> None:
    printed = page.execute_cdp_cmd("Page.printToPDF", {})["data"]
    pages = PdfReader(io.BytesIO(base64.b64decode(printed))).pages
    words = "".join("".join(part.extract_text().split()) for part in pages)
    plain = words.replace("ﬁ", "fi").replace("ﬂ", "fl").replace("ﬀ", "ff")
    assert len(texts(page, "caption")) > 8
    for heading in texts(page, "h2, caption"):
        assert "".join(heading.split())[:30] in plain
