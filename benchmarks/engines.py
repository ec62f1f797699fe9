"""Measures the overhead of an engine over the plain command: `python benchmarks/engines.py`,
with Ray installed.

The same trajectories against the same mock endpoint (200 ms an answer), by one process, by two, and
by Ray with two workers, one after the other; each with `--few` and with `--many` trajectories, so
that starting is told apart from judging: the difference of the two, by trajectory. The mock shares
the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from prill.captioner.recorded import GivenCaption
from prill.evaluators.outcome import CaptionJudge
from prill.models.client import OpenAIModel
from prill.scoring.scorer import score_files
from prill.testing import MockServer

WAYS: dict[str, dict[str, Any]] = {
    "1 process": {},
    "2 processes": {"processes": 2},
    "Ray, 2 workers": {"engine": {"name": "ray", "workers": 2}},
}


def seconds(
    base_url: str, folder: Path, count: int, concurrency: int, way: dict[str, Any]
) -> float:
    """Measures how long one engine takes for `count` trajectories."""
    path = folder / f"t{count}.jsonl"
    rows = (
        {"id": str(i), "task": {"goal": f"g {i}"}, "final": {"caption": "The order was placed."}}
        for i in range(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge = CaptionJudge(
        OpenAIModel("mock", base_url=base_url, concurrency=concurrency), GivenCaption()
    )
    start = time.perf_counter()
    tally = asyncio.run(
        score_files([path], judge, folder / "v.jsonl", concurrency=concurrency, resume=False, **way)
    )
    assert tally.made == count and not tally.unscored, tally
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--few", type=int, default=500)
    parser.add_argument("--many", type=int, default=5_000)
    parser.add_argument("--concurrency", type=int, default=64)
    args = parser.parse_args()
    print(
        f"| way | {args.few} | {args.many} | ms each, without the start | start "
        "|\n|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder, MockServer(latency=0.2) as server:
        # what is loaded once is loaded
        seconds(server.base_url, Path(folder), 50, args.concurrency, {})
        for name, way in WAYS.items():
            few, many = (
                seconds(server.base_url, Path(folder), n, args.concurrency, way)
                for n in (args.few, args.many)
            )
            each = (many - few) / (args.many - args.few)
            print(
                f"| {name} | {few:.1f} s | {many:.1f} s | {1000 * each:.2f} | "
                f"{few - args.few * each:.1f} s |",
                flush=True,
            )


if __name__ == "__main__":
    main()
