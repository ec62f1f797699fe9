"""Measures `prill view` with many runs: first rows, all rows, a search, and memory.

python benchmarks/view.py --runs 10000 --steps 20
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

WORDS = [
    "account",
    "order",
    "cart",
    "price",
    "search",
    "result",
    "page",
    "address",
    "review",
    "total",
]


def write(folder: Path, runs: int, steps: int, text: int, seed: int) -> None:
    """Writes runs with page texts, and a judge's verdicts."""
    draw = random.Random(seed)
    pages = [" ".join(draw.choices(WORDS, k=text // 6)) for _ in range(50)]
    with (folder / "t.jsonl").open("w") as out, (folder / "v.jsonl").open("w") as said:
        for number in range(runs):
            made = [
                {
                    "observation": {"text": f"{draw.choice(pages)} page{draw.randrange(10**6)}"},
                    "action": {"kind": "click", "text": f"click link {draw.choice(WORDS)}"},
                    "thought": f"The {draw.choice(WORDS)} is next.",
                }
                for _ in range(steps)
            ]
            goal = f"Find the {draw.choice(WORDS)} number {number}"
            run = {"id": f"run-{number}", "task": {"goal": goal}, "steps": made, "answer": "Done."}
            out.write(json.dumps(run) + "\n")
            verdict = {
                "id": f"run-{number}",
                "success": draw.random() < 0.5,
                "reason": f"the {draw.choice(WORDS)} was seen{' twice' if number == 7 else ''}",
                "evaluator": {"name": "made", "version": "1"},
            }
            said.write(json.dumps(verdict) + "\n")


async def measure(folder: Path, runs: int) -> None:
    """Starts the command and sends the same requests as the page."""
    begin = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prill", "view", str(folder / "t.jsonl"), "--json"),
        *("--verdicts", str(folder / "v.jsonl")),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    url = json.loads(await process.stdout.readline())["url"]
    opened = time.perf_counter() - begin

    async def asked(session: aiohttp.ClientSession, path: str) -> tuple[float, object]:
        start = time.perf_counter()
        async with session.get(url + path) as answer:
            found = await answer.json()
        return time.perf_counter() - start, found

    async with aiohttp.ClientSession() as session:
        first, slowest = None, 0.0
        while True:
            took, state = await asked(session, "api/state")
            assert isinstance(state, dict)
            slowest = max(slowest, took)
            if first is None and state["rows"]:
                first = time.perf_counter() - begin
            judges = state["judges"]
            if state["read"] >= 1 and judges and judges[0]["judged"] == runs:
                break
            await asyncio.sleep(0.1)
        whole = time.perf_counter() - begin
        searches = [
            (await asked(session, f"api/search?q={words}"))[0]
            for words in ("order", "page12345", "cart total review", "twice", "run-77", "nowhere")
        ]
        run = (await asked(session, "api/runs/500"))[0]
    process.terminate()
    await process.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    size = (folder / "t.jsonl").stat().st_size / 1e6
    print(
        f"{size:.0f} MB; address after {opened:.2f} s, first rows {first:.2f} s, all {whole:.1f} s "
        f"(an answer meanwhile at most {1000 * slowest:.0f} ms); slowest search "
        f"{1000 * max(searches):.0f} ms, a run {1000 * run:.0f} ms; peak {used:.0f} MB"
    )


def main() -> None:
    """Writes the runs into a temporary folder and measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--text", type=int, default=2_000, help="characters of a page")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), args.runs, args.steps, args.text, args.seed)
        asyncio.run(measure(Path(folder), args.runs))


if __name__ == "__main__":
    main()
