"""Measures time and memory of `prill report`, and the speed of its page:
`python benchmarks/report.py [--no-browser]`.

On the 619 runs of AgentRewardBench with key screenshots where they are ($PRILL_DATA, else
../shared/data), and on 2,000 synthetic runs of 10 steps with pictures of 1280x720; three judges
with made-up verdicts. Peak memory is that of the process. Aim: 600 trajectories with images in
under 20 s and 300 MB. The page is opened in headless Chromium: first paint, the list usable, and
the time from a key to the drawn trajectory (`j`: the next one, `n`: the next disagreement).
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from PIL import Image, ImageDraw

from prill.datasets.convert import convert
from prill.datasets.formats import agentrewardbench_webjudge as webjudge_runs
from prill.emulators.browser.chromium import Chromium
from prill.io.store import encode, encode_trajectory, iter_trajectories
from prill.types import (
    Action,
    Criterion,
    EvaluatorInfo,
    Findings,
    LabelRecord,
    Observation,
    Step,
    StepVerdict,
    Task,
    Trajectory,
    Usage,
    Verdict,
)

ROOT = Path(__file__).resolve().parents[1]
JUDGES = ("vlm", "rubric", "steps")
KEYS = 60


def main() -> None:
    data = Path(os.environ.get("PRILL_DATA") or ROOT.parent / "shared" / "data") / "arb_webjudge"
    with tempfile.TemporaryDirectory() as folder:
        sets = []
        if data.is_dir():
            convert(webjudge_runs.load(data), webjudge_runs.load_labels(data), Path(folder) / "arb")
            sets.append(("AgentRewardBench", Path(folder) / "arb"))
        else:
            synthetic(Path(folder) / "small", 600)
            sets.append(("synthetic", Path(folder) / "small"))
        synthetic(Path(folder) / "large", 2000)
        sets.append(("synthetic", Path(folder) / "large"))
        for name, place in sets:
            count = judged(place)
            for embed in (False, True):
                page = place / ("embedded.html" if embed else "linked.html")
                print(
                    f"{name}, {count} trajectories, {page.stem}: {written(place, page, embed)}",
                    flush=True,
                )
                if "--no-browser" not in sys.argv:
                    print(f"    {asyncio.run(opened(page))}", flush=True)


def synthetic(folder: Path, count: int) -> None:
    """Runs of ten steps; pictures are shared, so that making them does not take all the time."""
    (folder / "images").mkdir(parents=True)
    generator = random.Random(0)
    for i in range(count // 2):
        image = Image.effect_noise((320, 180), 60).convert("RGB").resize((1280, 720))
        ImageDraw.Draw(image).rectangle(
            (100, 80 + i % 500, 700, 200 + i % 500), fill="white", outline="black"
        )
        image.save(folder / "images" / f"{i}.webp", quality=75, method=0)
    with (
        (folder / "trajectories.jsonl").open("wb") as file,
        (folder / "labels.jsonl").open("wb") as labels,
    ):
        for i in range(count):
            steps = []
            for _ in range(10):
                shot = str(folder / "images" / f"{generator.randrange(count // 2)}.webp")
                text = "\n".join(
                    f"link 'entry {n}' [{generator.randrange(9999)}]" for n in range(120)
                )
                point = (generator.random(), generator.random())
                steps.append(
                    Step(
                        Observation(shot, text, "http://shop/list"),
                        Action("click", "click", point=point),
                        "Go on.",
                    )
                )
            task = Task(
                id=f"k{i // 4}",
                goal=f"Order item number {i} and confirm",
                platform="web",
                site=f"site {i % 7}",
            )
            item = Trajectory(
                id=f"run-{i}",
                task=task,
                agent=f"agent {i % 3}",
                steps=tuple(steps),
                answer="It is ordered.",
            )
            file.write(encode_trajectory(item, folder.resolve()))
            labels.write(encode(LabelRecord(id=item.id, success=generator.random() < 0.4)))


def judged(folder: Path) -> int:
    """Writes a verdict file for each judge, and returns the number of trajectories."""
    generator = random.Random(1)
    files = {name: (folder / f"{name}.jsonl").open("wb") for name in JUDGES}
    count = 0
    for item in iter_trajectories(folder / "trajectories.jsonl"):
        count += 1
        for name, file in files.items():
            file.write(encode(verdict(item, name, generator)))
    for file in files.values():
        file.close()
    return count


def verdict(item: Trajectory, name: str, generator: random.Random) -> Verdict:
    info, score = EvaluatorInfo(name, "1", "a-model"), generator.random()
    if generator.random() < 0.03:
        return Verdict(id=item.id, unscored="timeout", reason="no answer in 60 s", evaluator=info)
    criteria = tuple(
        Criterion(text=f"criterion {i}", met="met", step=0, reason="seen " * 20) for i in range(4)
    )
    labels = tuple(
        StepVerdict(i, "towards", 0.5, "closer to the goal " * 5) for i in range(len(item.steps))
    )
    return Verdict(
        id=item.id,
        success=score > 0.5,
        score=score,
        reason="The last screenshot shows what was asked for. " * 8,
        steps=labels if name == "steps" else None,
        usage=Usage(1, 2000, 150, 2, 0.004),
        seconds=generator.lognormvariate(1, 0.4),
        evaluator=info,
        findings=Findings(criteria=criteria, process=1.0) if name == "rubric" else None,
    )


def written(folder: Path, page: Path, embed: bool) -> str:
    """Runs the command in a separate process, which reports its peak memory."""
    words = [
        "report",
        folder / "trajectories.jsonl",
        "-o",
        page,
        "--labels",
        folder / "labels.jsonl",
        "--threshold",
        "0.6",
    ]
    words += [
        "--source",
        "human",
        "--verdicts",
        *(folder / f"{name}.jsonl" for name in JUDGES),
        *(["--embed"] if embed else []),
    ]
    program = "import sys; from prill.cli import main; from resource import *; main(sys.argv[1:]); "
    program += "print(getrusage(RUSAGE_SELF).ru_maxrss)"
    start = perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = perf_counter() - start
    memory = int(done.stdout.split()[-1]) / (1e6 if sys.platform == "darwin" else 1e3)
    return f"{seconds:.1f} s, peak {memory:.0f} MB, page {page.stat().st_size / 1e6:.1f} MB"


async def opened(page: Path) -> str:
    """Opens the page and walks through it with the keys."""
    browser = Chromium()
    try:
        context = await browser.context(1280, 800)
        tab = await context.new_page()
        start = perf_counter()
        await tab.goto(page.as_uri(), wait_until="commit")
        await tab.locator("#total:not(:empty)").wait_for()
        usable = perf_counter() - start
        await tab.wait_for_load_state("load")
        whole = perf_counter() - start
        paint = await tab.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
        )
        times = {key: await tab.evaluate(WALK, [key, KEYS]) for key in "jnk"}
    finally:
        await browser.close()
    walks = ", ".join(
        f"{key} {statistics.median(ms):.0f} (worst {max(ms):.0f})" for key, ms in times.items()
    )
    return (
        f"first paint {paint:.0f} ms, usable {usable * 1000:.0f} ms, all read "
        f"{whole * 1000:.0f} ms; a key, in ms: {walks}"
    )


# From the key to the second frame after it: by then what it changed has been painted.
WALK = """async ([key, count]) => {
  const times = [];
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    times.push(performance.now() - start);
  }
  return times;
}"""


if __name__ == "__main__":
    main()
