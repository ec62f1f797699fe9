"""Charts of shares: what is drawn has room."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from prill.evaluators.meta.figure import Figure
from prill.ui.report.lines import PlotLine, PlotPoint, line_chart, row_chart
from prill.ui.report.rates import rates_svg
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


@pytest.mark.parametrize("rate", [None, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("official", [0.0, 0.02, 0.5, 1.0])
def test_no_mark_of_a_protocol_touches_words(rate: float | None, official: float) -> None:
    scored = Figure("success", rate or 0.0, 0.0, 1.0, undefined=rate is None)
    root = ET.fromstring(rates_svg("Protocols", [("a judge", scored, Figure("", official))]))
    row = [node for node in root if 60 < float(node.get("cy") or node.get("y") or 0) < 86]
    words = [node for node in row if node.tag.endswith("text")]
    assert [node.text for node in words] == [
        "a judge",
        "nothing scored" if rate is None else f"{rate:.3f}",
    ]
    (name, stated), reach = (float(node.get("x") or 0) for node in words), 7.5
    marks = [float(node.get("cx") or 0) for node in row if node.tag.endswith("circle")]
    assert len(marks) == 2 - (rate is None)
    assert all(name + 2 < at - reach and at + reach + 2 < stated for at in marks)
    assert stated + 7 * len("nothing scored") <= float(root.get("width") or 0)
