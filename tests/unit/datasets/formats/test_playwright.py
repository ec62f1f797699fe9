"""Traces that Playwright 1.65 and 1.44 (`old`) wrote in a real Chromium:
tests/support/datasets/written/make_playwright.py.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from prill.datasets.formats.playwright import load
from tests.support.datasets.written.reading import WRITTEN, Row, one, rows

FILES = WRITTEN / "playwright"
LONG: list[Row] = [
    ("type", "green tea", "'Search'", (0.23, 0.21)),
    ("press", "Enter", "'Search'", (0.23, 0.21)),
    ("select", "Large", "'Size'", (0.16, 0.33)),
    ("hover", None, "button 'Buy'", (0.55, 0.21)),
    ("click", None, "button 'Buy'", (0.55, 0.21)),
    ("click", None, None, (0.5, 0.5)),
    ("scroll", "down", None, None),
    ("type", "more", None, None),
    ("other", None, None, None),
    ("double_click", None, "button 'Buy'", (0.55, 0.21)),
]


def archive(path: Path, *events: dict[str, Any], network: bool = True, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("trace.trace", "\n".join(json.dumps(event) for event in events))
        if network:
            file.writestr("trace.network", "")
        for name, data in entries.items():
            file.writestr(name.replace("__", "/"), data)
    return path


def before(
    call: str, start: float, method: str, kind: str = "Frame", **params: Any
) -> dict[str, Any]:
    return {
        "type": "before",
        "callId": call,
        "startTime": start,
        "class": kind,
        "method": method,
        "params": params,
    }


def test_actions_are_read(tmp_path: Path) -> None:
    run = one(load(FILES / "long.zip", images=tmp_path))
    first, *others = rows(run)
    assert first[0] == "goto" and first[1] and first[1].startswith("data:text/html")
    assert others == LONG, "what looks and waits is no step"
    assert (run.task.goal, run.error, run.metadata["title"]) == ("", None, "long trace")


def test_traces_of_version_6_are_read(tmp_path: Path) -> None:
    """They do not say where an element stands that is not clicked."""
    run = one(load(FILES / "old.zip", images=tmp_path))
    assert rows(run)[1:] == [row if i > 2 else (*row[:3], None) for i, row in enumerate(LONG)]
    assert all(step.observation.screenshot for step in run.steps[1:])


def test_pictures_are_the_last_frames_before(tmp_path: Path) -> None:
    run = one(load(FILES / "long.zip", images=tmp_path))
    seen = [step.observation.screenshot for step in run.steps]
    assert seen[0] is None and all(seen[1:]) and run.final is not None and run.final.screenshot
    assert seen[1] == seen[2] and len({*seen, run.final.screenshot}) >= 6
    assert run.steps[1].observation.url and run.steps[1].observation.url.startswith(
        "data:text/html"
    )


def test_a_trace_without_pictures_has_points() -> None:
    run = one(load(FILES / "short.zip"))
    assert rows(run)[1] == ("click", None, "button 'Buy'", (0.55, 0.21))
    assert run.final is None and all(step.observation.screenshot is None for step in run.steps)


def test_an_action_that_failed_says_so() -> None:
    run = one(load(FILES / "broken.zip"))
    assert rows(run)[1] == ("click", None, "button 'Sell'", None)
    assert (
        run.error == "Timeout 300ms exceeded."
        and run.final is not None
        and run.final.text == run.error
    )


def test_frames_by_their_hash(tmp_path: Path) -> None:
    """As traces had them until version 8."""
    with zipfile.ZipFile(FILES / "long.zip") as file:
        picture = file.read(next(name for name in file.namelist() if name.endswith(".jpeg")))
    events = [
        {
            "type": "screencast-frame",
            "sha1": "abc.jpeg",
            "timestamp": 1.0,
            "width": 100,
            "height": 100,
        },
        before("1", 2.0, "mouseClick", "Page", x=50, y=25),
        {
            "type": "screencast-frame",
            "sha1": "gone.jpeg",
            "timestamp": 3.0,
            "width": 100,
            "height": 100,
        },
    ]
    run = one(
        load(
            archive(tmp_path / "a.zip", *events, **{"resources__abc.jpeg": picture}),
            images=tmp_path / "i",
        )
    )
    assert run.steps[0].action.point == (0.5, 0.25) and run.steps[0].observation.screenshot
    assert run.final is None, "a frame that is missing is none"


def test_only_what_acts_on_pages_counts(tmp_path: Path) -> None:
    events = [
        before("1", 1, "newPage", "BrowserContext"),
        before("2", 2, "newPage", "BrowserContext"),
        before("3", 3, "click", "Tracing"),
        before("4", 4, "waitForSelector"),
        before("5", 5, "click", selector="#a >> text=b", button="right"),
        before("6", 6, "setInputFiles", localPaths=["a.txt", "b.txt"]),
    ]
    assert rows(one(load(archive(tmp_path / "a.zip", *events)))) == [
        ("new_tab", None, None, None),
        ("right_click", None, "#a >> text=b", None),
        ("upload", "a.txt, b.txt", None, None),
    ]
