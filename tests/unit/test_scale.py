"""The simulation of `benchmarks/scale.py`, on cases that can be computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prill.config.registry import load_file
from tests.support.paths import ROOT

scale: Any = load_file(ROOT / "benchmarks/scale.py")
# One core, one call at a time, ten seconds an answer, a second of the core before it and one after
# it.
ONE = scale.Site(concurrency=1, latency=10.0, cores=1, cpu=2.0, record=0, usd=0.5)


def test_one_call_at_a_time_adds_up() -> None:
    outcome = scale.simulate(ONE, 3)
    assert outcome.seconds == pytest.approx(3 * 12)
    assert outcome.usd == 1.5
    assert outcome.bottleneck == "endpoints"


def test_two_calls_share_one_core() -> None:
    # 0-1 first request, 1-2 second; answers at 11 and 12, and a second of the core for each.
    assert scale.simulate(replace(ONE, concurrency=2), 2).seconds == pytest.approx(13)
    # Two may begin, and one is answered at a time: the second waits from 2 to 11, and has its
    # answer at 21.
    assert scale.simulate(replace(ONE, calls=2), 2).seconds == pytest.approx(22)


def test_everything_around_the_calls_counts() -> None:
    site = replace(ONE, look=3.0, start=7.0, gather=100.0, record=500, disk=100.0)
    # Start 7, looking 2 x 3; the first verdict is on disk after 12 + 5, the second 17 later;
    # gathering takes 100 each.
    outcome = scale.simulate(site, 2)
    assert outcome.seconds == pytest.approx(7 + 6 + 17 + 200)
    assert outcome.bottleneck == "gathering"


def test_bottleneck_moves_from_calls_to_core() -> None:
    few = scale.Site(concurrency=10, latency=1.0, cores=1, cpu=0.02)
    outcome, wide = scale.simulate(few, 10**6), scale.simulate(replace(few, endpoints=10), 10**6)
    assert (outcome.bottleneck, wide.bottleneck) == ("endpoints", "cores")
    assert outcome.pace == pytest.approx(10, rel=0.05)
    assert wide.pace == pytest.approx(50, rel=0.05)
    assert wide.seconds == pytest.approx(10**6 / 50, rel=0.05)


def test_latency_that_varies_keeps_its_mean() -> None:
    steady = scale.Site(concurrency=50, latency=2.0, cores=4, cpu=0.0)
    assert scale.simulate(replace(steady, spread=0.7), 10**6).pace == pytest.approx(25, rel=0.1)
