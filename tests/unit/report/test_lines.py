"""Charts of shares: what is drawn has room."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from prill.evaluators.agreement.figure import Figure
from prill.ui.report.lines import PlotLine, PlotPoint, figure_chart, line_chart, row_chart
from prill.ui.svg import colours
from tests.support.paths import ROOT

NAME = "self-map/local/SmolLM2-135M-Instruct.Q4_1-b179c9523d0e-1+planner: steps right, by turn"
LINES = [PlotLine("a", [PlotPoint(0.0, 0.5, 0.4, 0.6, "5 of 10")])]


@pytest.mark.parametrize("rows", [False, True])
def test_long_titles_are_cut_in_the_middle(rows: bool) -> None:
    def drawn(title: str) -> tuple[str, str]:
        root = ET.fromstring(
            row_chart(title, ["first"], LINES) if rows else line_chart(title, "across", LINES)
        )
        whole, _, _, text = list(root)[:4]  # with the style and the ground
        return whole.text or "", text.text or ""

    assert drawn("Steps right") == ("Steps right", "Steps right")
    whole, shown = drawn(NAME * 2)
    assert whole == NAME * 2 and "…" in shown and 40 < len(shown) < 80
    assert shown.startswith("self-map/local/") and shown.endswith(": steps right, by turn")


def test_plots_take_their_colours_from_the_style() -> None:
    """Each colour is one of look.css, is written out for programs that know no variables, and has
    its dark twin; words that look like a colour stay words.
    """
    for path in (ROOT / "prill/ui").rglob("*.py"):
        assert not re.findall(r'"(?:#[0-9a-f]{3,6}|white|black)"', path.read_text("utf-8")), path
    drawn = line_chart('fill="var(--ink)"', "across", LINES)
    shown, style = ET.fromstring(drawn)[0], ET.fromstring(drawn)[1].text or ""
    assert shown.text == 'fill="var(--ink)"'
    light, dark = colours()
    used = set(re.findall(r' (?:fill|stroke)="(#[0-9a-f]{6})"', drawn))
    assert used and used <= set(light.values())
    for name, value in light.items():
        if value in used:
            assert f'="{value}"] {{ ' in style and dark[name] in style and dark[name] != value


def test_undefined_figures_have_no_mark() -> None:
    scored = [Figure("success", 0.0, undefined=True), Figure("success", 0.25, 0.1, 0.5)]
    drawn = figure_chart("Protocols", ["one", "two"], {"scored": scored, "official": scored[::-1]})
    root = ET.fromstring(drawn)
    titles = [node.text for node in root.iter() if node.tag.endswith("title")]
    shown = "25.0% (success 0.250 (95 % interval 0.100 to 0.500))"
    assert sorted(title for title in titles if title and "25.0%" in title) == [
        f"official: {shown}",
        f"scored: {shown}, interval 10.0% to 50.0%",
    ]
    assert not [title for title in titles if title and "undefined" in title]
