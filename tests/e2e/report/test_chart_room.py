"""Charts measured in the real Chromium: nothing is drawn over a label, and no label over
another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from random import Random
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from prill.evaluators.fitted.calibration import reliability
from prill.ui.report.lines import Level, PlotLine, PlotPoint, line_chart, row_chart
from prill.ui.report.plots import reliability_svg
from prill.ui.svg import colours
from tests.support.chromium import started_chromium
from tests.support.closing import closed

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")

TITLE = (
    "self-map/local/SmolLM2-135M-Instruct.Q4_1-b179c9523d0e-1+planner: steps right, by turn, "
    "of all TASKS of Mind2Web"
)
# Every text against every mark and curve (not the grid, which is behind), every other text, and the
# picture's edge.
COLLISIONS = """() => {
  const svg = document.querySelector("svg"), edge = svg.getBoundingClientRect();
  const box = (node) => node.getBoundingClientRect();
  const meet = (a, b, air) =>
    a.left < b.right - air && b.left < a.right - air && a.top < b.bottom - air && b.top < a.bottom - air;
  const runsInto = (curve, own) => {
    const matrix = curve.getScreenCTM(), length = curve.getTotalLength();
    for (let at = 0; at <= length; at += 3) {
      const { x, y } = curve.getPointAtLength(at).matrixTransform(matrix);
      if (x > own.left && x < own.right && y > own.top && y < own.bottom) return true;
    }
    return false;
  };
  const texts = [...svg.querySelectorAll("text")], found = [];
  const name = (text) => text.lastChild.textContent;
  texts.forEach((text, i) => {
    const own = box(text);
    const out = own.left < edge.left || own.right > edge.right || own.top < edge.top || own.bottom > edge.bottom;
    if (out) found.push(`${name(text)} leaves`);
    for (const other of texts.slice(i + 1)) if (meet(own, box(other), 1)) found.push(`${name(text)} meets ${name(other)}`);
    for (const mark of svg.querySelectorAll("path, circle, line, rect")) {
      const behind = [mark.getAttribute("stroke"), mark.getAttribute("fill")].some((one) => ["LINE", "PANEL"].includes(one));
      if (behind && !mark.querySelector("title")) continue;
      const curve = mark.tagName === "path" && mark.getAttribute("fill") === "none";
      if (curve ? runsInto(mark, own) : meet(own, box(mark), 1)) found.push(`${mark.tagName} over ${name(text)}`);
    }
  });
  return found;
}"""  # noqa: E501
for _name in ("line", "panel"):
    COLLISIONS = COLLISIONS.replace(_name.upper(), colours()[0][_name])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page() -> AsyncIterator[Page]:
    async with started_chromium() as browser:
        context = await browser.context(900, 900)
        yield await context.new_page()
        await closed(context)


async def collisions(page: Page, picture: str) -> list[str]:
    await page.set_content(f"<style>svg {{ width: 800px; display: block; }}</style>{picture}")
    found = await page.evaluate(COLLISIONS)
    return list(found)


def lines(random: Random, places: Iterable[float], names: int) -> list[PlotLine]:
    """Shares anywhere, and often where a label stands."""

    def point(x: float) -> PlotPoint:
        share = random.choice([0.0, 0.25, 0.5, 0.75, 1.0, random.random()])
        return PlotPoint(
            x, share, max(0.0, share - 0.2), min(1.0, share + 0.2), "5 of 10", [(x, share)]
        )

    places = list(places)
    return [
        PlotLine(f"way {i} " + "long " * random.choice([0, 3, 40]), [point(x) for x in places])
        for i in range(names)
    ]


@pytest.mark.parametrize("seed", range(4))
async def test_line_charts_leave_their_labels_free(page: Page, seed: int) -> None:
    random = Random(seed)
    count, names = random.choice([1, 3, 9, 40]), random.randrange(1, 7)
    level = random.choice([None, Level("as it was " * 20, 0.5, 0.4, 0.6)])
    assert (
        await collisions(
            page, line_chart(TITLE, "round", lines(random, range(count), names), whole=True)
        )
        == []
    )
    shares = sorted(random.random() for _ in range(5))
    for close in (False, True):
        drawn = line_chart(
            "share", "precision", lines(random, shares, names), level=level, close=close
        )
        assert await collisions(page, drawn) == []


@pytest.mark.parametrize("seed", range(4))
async def test_row_charts_leave_their_labels_free(page: Page, seed: int) -> None:
    random = Random(seed)
    names = [
        random.choice(["first", "WWWWWW wide", "a category of a longer name"])
        for _ in range(random.randrange(1, 6))
    ]
    assert (
        await collisions(
            page, row_chart(TITLE, names, lines(random, range(len(names)), random.randrange(1, 5)))
        )
        == []
    )


@pytest.mark.parametrize("seed", range(3))
async def test_calibration_leaves_its_labels_free(page: Page, seed: int) -> None:
    random = Random(seed)
    count = random.choice([3, 60, 20_000])
    scores = [random.choice([0.0, 1.0, random.random()]) for _ in range(count)]
    truths = [random.random() < score for score in scores]
    bins = reliability(scores, truths)
    after = reliability([score / 2 + 0.2 for score in scores], truths)
    assert await collisions(page, reliability_svg("judge " * 30 + ", isotonic", bins, after)) == []
