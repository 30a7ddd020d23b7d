"""The page in a real browser: no errors, every control works, names stay text, and what is printed is complete."""

import base64
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader

from tests.report.conftest import FORMULA, IMAGE, SCRIPT, Case

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="needs Chromium and chromedriver (Debian: chromium, chromium-driver)"
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.binary_location = str(BROWSER)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: Any, case: Case, tmp_path: Path) -> Any:
    """The browser with the page open, 1280 pixels wide."""
    case.report.save(tmp_path / "report.html")
    show(browser, 1280)
    browser.get((tmp_path / "report.html").as_uri())
    return browser


def show(browser: Any, width: int, scheme: str = "light") -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})


def choose(page: Any, control: str, option: int) -> None:
    page.execute_script(
        "const s = document.getElementById(arguments[0]); s.selectedIndex = arguments[1];"
        "s.dispatchEvent(new Event('change'));",
        control,
        option,
    )


def texts(page: Any, selector: str) -> list[str]:
    found: list[str] = page.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )
    return found


def press(page: Any, key: str) -> None:
    page.execute_script(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))", key
    )


def test_the_page_loads_without_a_message_in_the_console(page: Any) -> None:
    assert page.get_log("browser") == []


def test_hostile_names_and_values_stay_text(page: Any) -> None:
    assert page.title == "Report on predictions of <b>price"
    assert page.execute_script("return document.scripts.length") == 1
    assert page.execute_script("return document.images.length") == 0
    options = texts(page, "#explorer-x option")
    assert SCRIPT in options
    column = options.index("colour") + 2  # the table numbers its points first
    assert set(texts(page, f"#points td:nth-child({column})")) <= {IMAGE, FORMULA, 'plain, "quoted"'}


def test_choosing_a_column_moves_the_points(page: Any) -> None:
    def places() -> list[str]:
        found: list[str] = page.execute_script("return [...document.querySelectorAll('.point')].map(p => p.outerHTML)")
        return found

    names, before = texts(page, "#explorer-x option"), places()
    for option, name in enumerate(names):
        choose(page, "explorer-x", option)
        (label,) = texts(page, "#explorer .label-x")
        assert label.rstrip("…")[:30] == name[:30].split(" (pseudo-output)")[0]
    assert places() != before
    choose(page, "explorer-y", len(names) - 1)
    outputs = [float(cell) for cell in texts(page, "#points td:nth-last-child(2)")]
    heights = page.execute_script("return [...document.querySelectorAll('.point')].map(p => +p.getAttribute('cy'))")
    assert [i for i, _ in sorted(enumerate(outputs), key=lambda pair: pair[1])] == [
        i for i, _ in sorted(enumerate(heights), key=lambda pair: -pair[1])
    ]


def test_pointing_at_a_point_and_the_arrow_keys_say_its_values(page: Any) -> None:
    page.execute_script("document.querySelectorAll('.point')[2].dispatchEvent(new PointerEvent('pointerenter'))")
    assert texts(page, "#explorer-said")[0].startswith("Point 3, ")
    page.execute_script("document.querySelector('.point[tabindex=\"0\"]').focus()")
    press(page, "ArrowRight")
    (said,) = texts(page, "#explorer-said")
    assert said.startswith("Point 4, ")
    cells = page.execute_script("return [...document.querySelector('#points tr.chosen').cells].map(c => c.textContent)")
    assert all(cell in said for cell in cells)
    assert page.execute_script("return document.activeElement.dataset.row") == "3"


def test_a_heading_sorts_the_table_both_ways(page: Any) -> None:
    button = "document.querySelector('#points th:last-child button').click()"
    weights = [float(cell) for cell in texts(page, "#points td:last-child")]
    page.execute_script(button)
    assert [float(cell) for cell in texts(page, "#points td:last-child")] == sorted(weights)
    page.execute_script(button)
    assert [float(cell) for cell in texts(page, "#points td:last-child")] == sorted(weights, reverse=True)
    assert page.execute_script("return document.querySelector('#points th:last-child').ariaSort") == "descending"


def test_the_table_is_saved_as_csv_without_formulas(page: Any) -> None:
    saved: str = page.execute_async_script(
        "const done = arguments[0], make = URL.createObjectURL;"
        "URL.createObjectURL = blob => { blob.text().then(done); return make(blob); };"
        "document.getElementById('save-csv').click();"
    )
    head, *lines = saved.split("\r\n")
    assert head.endswith(",<b>price,weight")
    assert len(lines) == 13  # 12 points, and the end of the last line
    assert f",{FORMULA}," not in saved


def test_a_row_is_chosen_and_the_others_are_hidden(page: Any) -> None:
    count = len(texts(page, "#rests-row option"))
    for option in range(count):
        choose(page, "rests-row", option)
        shown = page.execute_script(
            "return [...document.querySelectorAll('.rests')].filter(p => p.checkVisibility()).map(p => p.dataset.row)"
        )
        assert shown == [str(option)]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen(page: Any, width: int, scheme: str) -> None:
    show(page, width, scheme)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    paper = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


def test_what_is_printed_is_complete(page: Any) -> None:
    printed = page.execute_cdp_cmd("Page.printToPDF", {})["data"]
    words = "".join(
        "".join(part.extract_text().split()) for part in PdfReader(io.BytesIO(base64.b64decode(printed))).pages
    )
    captions = texts(page, "caption")
    assert len(captions) > 15
    plain = words.replace("ﬁ", "fi").replace("ﬂ", "fl").replace("ﬀ", "ff")
    assert [caption for caption in captions if "".join(caption.split()) not in plain] == []
    assert all("".join(heading.split()) in plain for heading in texts(page, "h2"))
