"""The page of a report in a real browser: nothing is asked of the network, tables sort, and it fits
a phone.
"""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

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
_PROBE = r"""
<script>
addEventListener("load", () => {
  const table = [...document.querySelectorAll("table")].find(each => each.caption?.innerText.startsWith("Means"));
  const values = () => [...table.tBodies[0].rows].map(row => Number(row.cells[1].dataset.value));
  const head = table.tHead.rows[0].cells[1];
  head.firstChild.click();
  const up = values();
  head.firstChild.click();
  const link = document.querySelector("figure a");
  link.scrollIntoView();
  const { left, top: above, width, height } = link.getBoundingClientRect();
  const clicked = document.elementFromPoint(left + width / 2, above + height / 2) === link;
  // A frame would go to its parent's page.
  if (top === self) link.click();
  setTimeout(() => top.document.body.dataset.seen = JSON.stringify({
    clicked, open: document.getElementById(link.hash.slice(1)).open, contrast: worstContrast(),
    sides: [...document.querySelectorAll("figure")].map(each => each.getBoundingClientRect().left),
    tops: [...document.querySelectorAll("figure img")].map(each => each.getBoundingClientRect().top),
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
  }), 100);
});
// The least contrast of any text with what is behind it, by WCAG 2.2, and the text.
const numbers = color => color.match(/[\d.]+/g).map(Number);
const luminance = color => color
  .map(value => value / 255)
  .map(value => value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4)
  .reduce((sum, value, place) => sum + value * [.2126, .7152, .0722][place], 0);
function contrast(element, pseudo) {
  const style = getComputedStyle(element, pseudo);
  let opacity = pseudo ? Number(style.opacity) : 1, back = null;
  for (let each = element; each; each = each.parentElement) {
    const [r, g, b, alpha = 1] = numbers(getComputedStyle(each).backgroundColor);
    back ??= alpha === 1 ? [r, g, b] : null;
    opacity *= Number(getComputedStyle(each).opacity);
  }
  const front = numbers(style.color).map((value, place) => value * opacity + back[place] * (1 - opacity));
  const [low, high] = [front.slice(0, 3), back].map(luminance).sort((one, other) => one - other);
  return (high + .05) / (low + .05);
}
function worstContrast() {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), seen = [];
  while (texts.nextNode()) {
    const text = texts.currentNode, parent = text.parentElement;
    if (!text.data.trim() || parent.tagName === "SCRIPT") continue;
    seen.push([contrast(parent), text.data]);
    if (parent.tagName === "BUTTON") seen.push([contrast(parent, "::after"), "the arrow"]);
  }
  return [seen.length, ...seen.reduce((one, other) => other[0] < one[0] ? other : one)];
}
</script>
"""

# Scrolls the second of the tables that are wider than their boxes to its end.
_SCROLLED = """
<script>
addEventListener("load", () => {
  const boxes = [...document.querySelectorAll(".scroll")].filter(box => box.clientWidth);
  const wide = boxes.filter(box => box.scrollWidth > box.clientWidth);
  wide[1].scrollLeft = wide[1].scrollWidth;
  const narrow = boxes.filter(box => !wide.includes(box));
  setTimeout(() => top.document.body.dataset.seen = JSON.stringify([wide[0], wide[1], narrow[0]].map(box => {
    const { left, right } = box.getBoundingClientRect();
    const { top, bottom } = box.querySelector("tbody").getBoundingClientRect();
    return { left, right, top, bottom };
  })), 100);
});
</script>
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    output = ScoredOutput(tmp_path_factory.mktemp("made")).run()
    output.write_corpus()
    folder = tmp_path_factory.mktemp("page")
    succeed("report", output.plan.output, "--output", folder, "--trials", "2")
    return folder / "report.html"


@pytest.fixture(scope="module")
def page(report):
    return _probed(report, _PROBE, "probed.html")


def _probed(report: Path, probe: str, name: str) -> Path:
    path = report.with_name(name)
    path.write_text(report.read_text().replace("</body>", f"{probe}</body>"))
    return path


def _framed(page: Path, width: int, height: int = 900) -> Path:
    """A window cannot be narrower than 500 pixels, and a frame can."""
    framed = page.with_name(f"{width}-{page.name}")
    framed.write_text(
        f'<body style="margin:0"><iframe style="border:0;width:{width}px;height:{height}px" '
        f'srcdoc="{html.escape(page.read_text())}"></iframe>'
    )
    return framed


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
    seen = _seen(_framed(page, width), "--window-size=1400,900")
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
    # Two pictures are side by side where there is room.
    assert len({*seen["sides"]}) == (1 if width == 400 else 2)
    assert (seen["tops"][0] == seen["tops"][1]) == (width == 1280)
    assert seen["clicked"]


@pytest.mark.parametrize("scheme", [1, 0], ids=["light", "dark"])
def test_table_that_scrolls_has_a_shade_where_more_of_it_is(report, tmp_path, scheme):
    arguments = ["--window-size=500,8000", f"--blink-settings=preferredColorScheme={scheme}"]
    framed = _framed(_probed(report, _SCROLLED, "scrolled.html"), 400, 8000)
    boxes = _seen(framed, *arguments)
    _browse(framed, f"--screenshot={tmp_path / 'page.png'}", "--hide-scrollbars", *arguments)
    image = imread(tmp_path / "page.png")[..., :3]
    back = image[2, 2]

    def is_shaded(box: dict, side: str) -> bool:
        place = round(box["left"]) + 1 if side == "left" else round(box["right"]) - 2
        strip = image[round(box["top"]) : round(box["bottom"]), place]
        return bool(np.abs(strip - back).mean() > 0.1)

    shades = [[side for side in ("left", "right") if is_shaded(box, side)] for box in boxes]
    assert shades == [["right"], ["left"], []]


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


@pytest.mark.parametrize(
    ("scheme", "back"), [(1, "rgb(255, 255, 255)"), (0, "rgb(20, 23, 26)")], ids=["light", "dark"]
)
def test_text_is_readable_in_the_light_and_the_dark_mode(page, scheme, back):
    """Pictures are inverted in the dark one, which the tests of pictures account for."""
    seen = _seen(page, f"--blink-settings=preferredColorScheme={scheme}")
    assert seen["back"] == back
    texts, least, text = seen["contrast"]
    assert texts > 500
    assert least >= 4.5, text


def test_bar_of_a_topic_opens_its_section(page):
    seen = _seen(page)
    assert seen["clicked"]
    assert seen["open"]


def test_page_can_be_printed(page, tmp_path):
    _browse(page, f"--print-to-pdf={tmp_path / 'page.pdf'}")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
