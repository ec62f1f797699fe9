"""A clock that is set back: what is measured, awaited or ordered does not change."""

from __future__ import annotations

import ast
import io
import os
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

import prill
from prill.models.transport import retry_after

YEAR = 365 * 24 * 3600.0
# What asks for the time of day, and why: everything else measures, and a duration by this clock may
# be negative or years.
ALLOWED = {
    "io/images.py": (
        "compares with the time of a file, which is of the same clock; a file of the "
        "future is read again"
    ),
    "models/transport.py": "a date to wait until, of a server that does not say what time it is",
    "datasets/live.py": "the date of a recording",
    "runs/export.py": "the time of a span, as OpenTelemetry has it",
    "service/metrics.py": "shows when a judgement came",
}


@pytest.fixture
def set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the time of day is a year ago, and goes on from there."""
    before, before_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: before() - YEAR)
    monkeypatch.setattr(time, "time_ns", lambda: before_ns() - int(YEAR * 10**9))


def test_no_duration_is_by_the_time_of_day() -> None:
    root, found = Path(prill.__file__).parent, set[str]()
    for folder, _, names in os.walk(root, followlinks=True):
        for file in (Path(folder) / name for name in names if name.endswith(".py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if (
                    ast.unparse(node) in ("time.time", "time.time_ns")
                    if isinstance(node, ast.Attribute)
                    else False
                ):
                    found.add(file.relative_to(root).as_posix())
    assert {one for one in found if not one.startswith(tuple(ALLOWED))} == set()
    assert {
        allowed for allowed in ALLOWED if not any(one.startswith(allowed) for one in found)
    } == set()


def test_a_rate_of_judgements_stays(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("prometheus_client")
    from prill.service.metrics import JudgeHealth

    ticks = iter(range(1000, 2000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    health = JudgeHealth(started=0.0)
    for _ in range(100):
        health.note(ValueError())
        next(ticks)
    request.getfixturevalue("set_back")
    assert health.rate() == pytest.approx(30 / 60, rel=0.1)


def test_a_servers_date_is_by_its_own_clock(set_back: None) -> None:
    """Retry-After as a date: without the answer's own date, a clock of a year ago would wait for a
    year.
    """
    now = datetime.fromtimestamp(time.time() + YEAR, UTC)
    until = format_datetime(now + timedelta(seconds=30), usegmt=True)
    assert retry_after(
        {"retry-after": until, "date": format_datetime(now, usegmt=True)}
    ) == pytest.approx(30)
    assert retry_after({"retry-after": until, "date": "garbled"}) is None


def test_a_bar_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """tqdm's own clock is set back in the middle: the bar is drawn all the same, and no time is
    negative.
    """
    pytest.importorskip("tqdm")
    import tqdm.std

    from prill.cli.showing import progress_bar

    words, ticks = io.StringIO(), iter(range(1000, 2000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    with progress_bar(total=10, file=words, mininterval=1, miniters=1) as bar:
        bar.update(1)
        monkeypatch.setattr(tqdm.std, "time", lambda: 0.0)
        words.truncate(0)
        bar.update(1)
        assert " 2/10 " in words.getvalue() and "-" not in words.getvalue()
