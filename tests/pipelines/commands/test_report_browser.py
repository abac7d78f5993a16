"""The page of a report in a real browser: nothing is asked of the network, tables sort, and it fits
a phone.
"""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import succeed
from tests.support.scored_outputs import ScoredOutput

_BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_BROWSER is None, reason="no Chromium: apt-get install chromium"),
]

# Sorts the first table of measures by its second column, twice, and leaves what it sees in the
# title.
_PROBE = """
<script>
addEventListener("load", () => {
  const table = [...document.querySelectorAll("table")].find(each => each.caption?.innerText.startsWith("Means"));
  const values = () => [...table.tBodies[0].rows].map(row => Number(row.cells[1].dataset.value));
  const head = table.tHead.rows[0].cells[1];
  head.firstChild.click();
  const up = values();
  head.firstChild.click();
  top.document.body.dataset.seen = JSON.stringify({
    up, down: values(), sorted: head.getAttribute("aria-sort"),
    pictures: [...document.images].map(image => image.complete && image.naturalWidth > 0),
    tables: document.querySelectorAll("table").length,
    asked: performance.getEntriesByType("resource").filter(entry => !entry.name.startsWith("data:")).length,
    width: document.documentElement.scrollWidth, window: innerWidth,
    captions: [...document.querySelectorAll("caption span, summary")].map(each => each.getBoundingClientRect().right),
    text: Math.max(0, ...[...document.querySelectorAll("th.wide")].map(each => each.getBoundingClientRect().width)),
    height: document.documentElement.scrollHeight,
    boxes: [...document.querySelectorAll(".scroll")].map(box => box.getBoundingClientRect().right),
    scrolled: [...document.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth).length,
    labels: [...document.images].every(image => image.alt),
    back: getComputedStyle(document.body).backgroundColor,
  });
});
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    output = ScoredOutput(tmp_path_factory.mktemp("made")).run()
    output.write_corpus()
    folder = tmp_path_factory.mktemp("page")
    succeed("report", output.plan.output, "--output", folder, "--trials", "2")
    path = folder / "probed.html"
    path.write_text((folder / "report.html").read_text().replace("</body>", f"{_PROBE}</body>"))
    return path


def _browse(page: Path, *arguments: str) -> str:
    command = [
        str(_BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=5000",
        *arguments,
    ]
    return subprocess.run(
        [*command, page.as_uri()], check=True, capture_output=True, text=True, timeout=120
    ).stdout


def _seen(page: Path, *arguments: str) -> dict:
    (found,) = re.findall(r'data-seen="([^"]*)"', _browse(page, "--dump-dom", *arguments))
    return json.loads(html.unescape(found))


@pytest.mark.parametrize("width", [1280, 400])
def test_page_works_without_network_at_any_width(page, width):
    # A window cannot be narrower than 500 pixels, and a frame can.
    framed = page.with_name(f"{width}.html")
    framed.write_text(
        f'<iframe style="border:0;width:{width}px" '
        f'srcdoc="{html.escape(page.read_text())}"></iframe>'
    )
    seen = _seen(framed, "--window-size=1400,900")
    assert seen["asked"] == 0
    assert len(seen["pictures"]) == 5
    assert all(seen["pictures"])
    assert seen["tables"] >= 7
    assert seen["up"] == sorted(seen["up"])
    assert seen["down"] == sorted(seen["down"], reverse=True)
    assert seen["sorted"] == "descending"
    assert seen["labels"]
    assert seen["width"] <= seen["window"] == width
    # A wide table scrolls inside its own box.
    assert max(seen["boxes"]) <= width
    assert (seen["scrolled"] > 0) == (width == 400)
    assert max(seen["captions"]) <= width
    assert seen["text"] >= 200
    assert seen["height"] < 9000


def test_page_runs_no_script_of_ids_and_texts(tmp_path):
    """Each would write into the body; the last one ends an attribute and an element of SVG."""
    run = "document.body.dataset.seen=1"
    evil = (
        f"<script>{run}</script><img/src=x/onerror={run}>\"'/onmouseover={run}/x='</title></svg>"
        f"<svg/onload={run}>"
    )
    output = ScoredOutput(tmp_path, prefix=evil, topics=4, run_tag="a<svg/onload=1>").run()
    output.write_corpus()
    succeed("report", output.plan.output, "--output", tmp_path / "page", "--trials", "2")
    for each in ((tmp_path / "page").glob("*.*ml"), (tmp_path / "page").glob("*.svg")):
        for path in each:
            assert "data-seen" not in _browse(path, "--dump-dom"), path


def test_page_has_a_dark_mode(page):
    light, dark = (
        _seen(page, f"--blink-settings=preferredColorScheme={scheme}")["back"] for scheme in (1, 0)
    )
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 26)")


def test_page_can_be_printed(page, tmp_path):
    _browse(page, f"--print-to-pdf={tmp_path / 'page.pdf'}")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
