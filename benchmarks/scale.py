"""What judging 10⁴ to 10⁸ trajectories takes, by simulation, and where the bottleneck is:
`python benchmarks/scale.py`.

Events, one after another: a trajectory waits until its shard has read that far, for a place among
the calls at once, for a core that prepares its request, for a place at an endpoint, for the answer,
for the core again, for the disk; then the process that gathers the shards' verdicts takes it. Every
shard reads all lines and passes over those of the others, which costs each process the same time,
and a core as often as there are shards. Of a long run so many trajectories are simulated that the
calls at once are filled `WAVES` times; the rest comes at the pace of the middle of these.

    python benchmarks/scale.py                   the table
    python benchmarks/scale.py --svg FILE        besides, the pace by the number of endpoints, as a
    picture python benchmarks/scale.py --check           against runs of prill on this machine, with
    the mock endpoint

`--check` measures the pace where the endpoint answers at once, for the time of a verdict on a core.
Everything else is estimated by it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush
from pathlib import Path

WAVES, LEAST = 5, 4_000
SIZES = (10**4, 10**5, 10**6, 10**7, 10**8)


@dataclass(frozen=True)
class Site:
    """What judges. Times are seconds of one trajectory; `spread` is the standard deviation of the
    logarithm of the latency.
    """

    endpoints: int = 1
    concurrency: int = 256  # of each endpoint
    latency: float = 2.0
    spread: float = 0.0
    cores: int = 2
    cpu: float = 0.003
    calls: int | None = None  # at once; None: as many as the endpoints take
    record: int = 4_000  # bytes of a verdict with its transcript
    disk: float = 200e6  # bytes a second
    shards: int = 1  # processes, each of which reads all lines
    look: float = 0.0  # of a shard, for a line that it passes over
    gather: float = 0.0  # of the one process that takes the verdicts
    start: float = 0.0  # seconds until workers work
    usd: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """How long it takes, what it costs, the verdicts a second, and how busy each station is, from 0
    to 1.
    """

    seconds: float
    usd: float
    pace: float
    busy: dict[str, float]

    @property
    def bottleneck(self) -> str:
        """The station with the highest utilisation."""
        return max(self.busy, key=lambda name: self.busy[name])


class _Station:
    """A queue with a fixed number of servers, first come first served."""

    def __init__(self, places: int) -> None:
        self.free = places
        self.waiting: deque[Callable[[], None]] = deque()
        self.worked = 0.0


def simulate(site: Site, count: int, seed: int = 0) -> Outcome:
    """A run of `count` trajectories at a site."""
    calls = site.calls or site.endpoints * site.concurrency
    simulated = min(count, max(LEAST, WAVES * calls))
    ends, worked = _ends(site, simulated, seed)
    early, late = int(0.3 * simulated), int(0.7 * simulated)
    steady = simulated < count and ends[late] > ends[early]
    pace = (late - early) / (ends[late] - ends[early]) if steady else simulated / ends[-1]
    seconds = site.start + ends[-1] + (count - simulated) / pace
    places = {
        "reading": 1,
        "cores": site.cores,
        "endpoints": site.endpoints * site.concurrency,
        "disk": 1,
        "gathering": 1,
    }
    busy = {name: min(1.0, pace * worked[name] / simulated / places[name]) for name in places}
    # Where the calls at once are fewer than the endpoints take, those are what the endpoints wait
    # for.
    if calls < places["endpoints"]:
        busy["calls"] = busy["endpoints"] * places["endpoints"] / calls
    return Outcome(seconds, count * site.usd, pace, busy)


@lru_cache(64)
def _ends(site: Site, count: int, seed: int) -> tuple[list[float], dict[str, float]]:
    """Returns the time at which each verdict is collected, and the busy time of each station."""
    draw, clock = random.Random(seed), 0.0
    events: list[tuple[float, int, Callable[[], None]]] = []
    cpu = site.cpu / 2 + site.look * site.shards / 2
    stations = {
        "reading": _Station(1),
        "calls": _Station(site.calls or site.endpoints * site.concurrency),
        "cores": _Station(site.cores),
        "endpoints": _Station(site.endpoints * site.concurrency),
        "disk": _Station(1),
        "gathering": _Station(1),
    }
    ends: list[float] = []
    numbers = 0

    def after(seconds: float, then: Callable[[], None]) -> None:
        nonlocal numbers
        numbers += 1
        heappush(events, (clock + seconds, numbers, then))

    def take(name: str, then: Callable[[], None]) -> None:
        station = stations[name]
        if station.free:
            station.free -= 1
            then()
        else:
            station.waiting.append(then)

    def leave(name: str) -> None:
        station = stations[name]
        if station.waiting:
            station.waiting.popleft()()
        else:
            station.free += 1

    def work(name: str, seconds: float, then: Callable[[], None]) -> None:
        def begin() -> None:
            stations[name].worked += seconds
            after(seconds, end)

        def end() -> None:
            leave(name)
            then()

        take(name, begin)

    def latency() -> float:
        if not site.spread:
            return site.latency
        # with the same mean
        return site.latency * draw.lognormvariate(-(site.spread**2) / 2, site.spread)

    def judge() -> None:
        def written() -> None:
            leave("calls")
            work("gathering", site.gather, lambda: ends.append(clock))

        def answered() -> None:
            work("cores", cpu, lambda: work("disk", site.record / site.disk, written))

        work("cores", cpu, lambda: work("endpoints", latency(), answered))

    for _ in range(count):
        work("reading", site.look, lambda: take("calls", judge))
    while events:
        clock, _, event = heappop(events)
        event()
    return ends, {name: station.worked for name, station in stations.items()}


# Of a verdict: prill's own CPU time (RESULTS.md; here on a slow core), that of passing over a line
# of 6 kB and that of gathering a verdict (42 and 34 microseconds of CPU time on the same machine,
# the latter rounded up for what counts and shows).
TEXT, PICTURES = 0.004, 0.008
LOOK, GATHER = 42e-6, 50e-6
# Assumed: a judge that reads 3,000 tokens and writes 150, at 0.15 and 0.60 US dollars a million;
# with pictures 8,000.
PRICED = {"text": (3_000 * 0.15 + 150 * 0.60) / 1e6, "pictures": (8_000 * 0.15 + 150 * 0.60) / 1e6}
WAYS = {
    "1 process, 1 endpoint": Site(cores=1, cpu=TEXT, gather=GATHER, usd=PRICED["text"], spread=0.5),
    "2 cores, 4 endpoints": Site(
        endpoints=4,
        shards=2,
        cpu=TEXT,
        look=LOOK,
        gather=GATHER,
        start=15,
        usd=PRICED["text"],
        spread=0.5,
    ),
    "32 cores, 16 endpoints": Site(
        endpoints=16,
        cores=32,
        shards=32,
        cpu=TEXT,
        look=LOOK,
        gather=GATHER,
        start=30,
        usd=PRICED["text"],
        spread=0.5,
    ),
    "32 cores, 16 endpoints, pictures": Site(
        endpoints=16,
        cores=32,
        shards=32,
        cpu=PICTURES,
        latency=6.0,
        look=LOOK,
        gather=GATHER,
        start=30,
        usd=PRICED["pictures"],
        spread=0.5,
    ),
    "256 cores, 64 endpoints": Site(
        endpoints=64,
        cores=256,
        shards=256,
        cpu=TEXT,
        look=LOOK,
        gather=GATHER,
        start=60,
        usd=PRICED["text"],
        spread=0.5,
    ),
}


def duration(seconds: float) -> str:
    """A time for reading."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def table() -> str:
    """Ways by sizes, in Markdown."""
    lines = [
        "| way | "
        + " | ".join(f"10^{len(str(size)) - 1}" for size in SIZES)
        + " | cost of 10^6 | verdicts/s | fullest |",
        "|---" * (len(SIZES) + 4) + "|",
    ]
    for name, site in WAYS.items():
        outcomes = [simulate(site, size) for size in SIZES]
        large = outcomes[-1]
        cells = [duration(outcome.seconds) for outcome in outcomes]
        cells += [
            f"${1e6 * site.usd:,.0f}",
            f"{large.pace:,.0f}",
            f"{large.bottleneck} ({large.busy[large.bottleneck]:.0%})",
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


CORES, ENDPOINTS = (2, 16, 128), (1, 2, 4, 8, 16, 32, 64, 128, 256)


def paces() -> dict[int, list[Outcome]]:
    """The pace by the number of endpoints, for some numbers of cores."""
    # As many answers a second as 256 calls at once of 2 seconds each, and a quarter of the events.
    site = replace(WAYS["32 cores, 16 endpoints"], concurrency=64, latency=0.5)
    return {
        cores: [
            simulate(replace(site, cores=cores, shards=cores, endpoints=n), 10**8)
            for n in ENDPOINTS
        ]
        for cores in CORES
    }


def picture(found: dict[int, list[Outcome]]) -> str:
    """The paces as SVG, both axes by powers of ten; each mark has the colour of what is fullest
    there.
    """
    from math import log10

    colors = {
        "endpoints": "#1f77b4",
        "cores": "#d62728",
        "gathering": "#2ca02c",
        "reading": "#9467bd",
        "disk": "#8c564b",
    }
    least, most = 50.0, 40_000.0

    def at(endpoints: int, pace: float) -> tuple[float, float]:
        x = 60 + 480 * log10(endpoints) / log10(ENDPOINTS[-1])
        return x, 300 - 270 * log10(pace / least) / log10(most / least)

    parts = [
        (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 350" '
            'font-family="sans-serif" font-size="12">'
        )
    ]
    parts.append('<rect width="700" height="350" fill="white"/>')
    for pace in (100, 1_000, 10_000):
        y = at(1, pace)[1]
        parts.append(
            f'<path d="M60 {y:.0f}H540" stroke="#ddd"/><text x="54" y="{y + 4:.0f}" '
            f'text-anchor="end">{pace:,}</text>'
        )
    for count in ENDPOINTS:
        parts.append(
            f'<text x="{at(count, least)[0]:.0f}" y="318" text-anchor="middle">{count}</text>'
        )
    parts.append(
        '<text x="300" y="340" text-anchor="middle">endpoints of 128 answers a second each</text>'
    )
    parts.append('<text x="60" y="18">verdicts a second</text>')
    for cores, outcomes in found.items():
        points = [
            at(count, outcome.pace) for count, outcome in zip(ENDPOINTS, outcomes, strict=True)
        ]
        line = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="#888"/>')
        for (x, y), outcome in zip(points, outcomes, strict=True):
            parts.append(
                f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="{colors[outcome.bottleneck]}"/>'
            )
        parts.append(
            f'<text x="{points[-1][0] + 8:.0f}" y="{points[-1][1] + 4:.0f}">{cores} cores</text>'
        )
    for number, name in enumerate(("endpoints", "cores", "gathering", "reading")):
        y = 40 + 18 * number
        parts.append(
            f'<circle cx="80" cy="{y}" r="4" fill="{colors[name]}"/><text x="90" '
            f'y="{y + 4}">fullest: {name}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def measured(latency: float, concurrency: int, count: int) -> float:
    """Measures verdicts per second of prill in one process, against the mock endpoint."""
    from prill.captioner.recorded import GivenCaption
    from prill.evaluators.outcome import CaptionJudge
    from prill.models.client import OpenAIModel
    from prill.scoring.scorer import score_files
    from prill.testing import MockServer

    with tempfile.TemporaryDirectory() as folder, MockServer(latency=latency) as server:
        path = Path(folder) / "t.jsonl"
        rows = (
            {
                "id": str(i),
                "task": {"goal": f"g {i}"},
                "final": {"caption": "The order was placed."},
            }
            for i in range(count)
        )
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        judge = CaptionJudge(
            OpenAIModel("mock", base_url=server.base_url, concurrency=concurrency), GivenCaption()
        )
        start = time.perf_counter()
        tally = asyncio.run(
            score_files([path], judge, Path(folder) / "v.jsonl", concurrency=concurrency)
        )
        assert not tally.unscored, tally.unscored
        return count / (time.perf_counter() - start)


def check(points: Sequence[tuple[float, int]], seconds: float) -> str:
    """Paces as estimated and as measured; what a verdict takes is measured just before each, as
    machines are busy by turns.
    """
    import openai  # noqa: F401 - loaded before anything is measured

    cpu = 1 / measured(0.0, 64, 200)  # connections, caches
    lines = [
        (
            "| latency | at once | ms a verdict, no latency | estimated | measured | measured / "
            "estimated |"
        ),
        "|---|---|---|---|---|---|",
    ]
    for latency, concurrency in points:
        cpu = 1 / measured(0.0, 64, max(100, round(seconds / cpu)))
        count = max(100, 3 * concurrency, round(seconds * min(concurrency / latency, 0.8 / cpu)))
        site = Site(concurrency=concurrency, latency=latency, cores=1, cpu=cpu)
        estimated = count / simulate(site, count).seconds
        real = measured(latency, concurrency, count)
        found = f"{1000 * cpu:.2f} | {estimated:.1f}/s | {real:.1f}/s | {real / estimated:.2f}"
        lines.append(f"| {latency:g} s | {concurrency} | {found} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--svg", metavar="FILE")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measured point, about")
    args = parser.parse_args()
    if args.check:
        print(check([(2.0, 16), (0.2, 16), (0.2, 64), (0.2, 256), (1.0, 64)], args.seconds))
        return
    print(table())
    if args.svg:
        found = paces()
        Path(args.svg).write_text(picture(found))
        for cores, outcomes in found.items():
            print(
                f"{cores} cores: "
                + ", ".join(
                    f"{n}: {o.pace:,.0f} {o.bottleneck}"
                    for n, o in zip(ENDPOINTS, outcomes, strict=True)
                )
            )


if __name__ == "__main__":
    main()
