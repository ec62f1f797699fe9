"""Every page that prill makes, with something in every part of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from prill.captioner.cache import image_id
from prill.captioner.files import Caption
from prill.io.store import encode, encode_trajectory, read_labels
from prill.models.transcripts import (
    Call,
    ImageFile,
    Transcript,
    TranscriptLog,
    Turn,
    transcript_folder,
)
from prill.types import (
    Action,
    Criterion,
    EvaluatorInfo,
    Findings,
    LabelRecord,
    Observation,
    Opinion,
    Step,
    StepLabel,
    StepVerdict,
    Task,
    Trajectory,
    Usage,
    Verdict,
)
from prill.ui.report.entries import Retry, read_judges
from prill.ui.report.page import write_report
from prill.ui.view.run import ViewConfig, view

GOALS = ("Order a loaf of rye bread", "Find the opening hours of the library", "Mute the channel")
JUDGES = (EvaluatorInfo("vlm", "1", "gpt-4o"), EvaluatorInfo("rubric", "2", "gpt-4o-mini"))
RETRIES = {
    "bread-0": Retry(lesson="Check that the basket holds one loaf before you pay."),
    "bread-1": Retry(ended="accepted", answer=True),
}


def screenshot(path: Path, words: str, size: tuple[int, int] = (640, 400)) -> str:
    image = Image.new("RGB", size, "white")
    drawn = ImageDraw.Draw(image)
    drawn.rectangle((0, 0, size[0], 50), fill="#224488")
    drawn.rectangle((40, 120, 240, 170), outline="#666666", width=2)
    drawn.text((20, 18), words, fill="white")
    image.save(path)
    return str(path)


def trajectories(folder: Path) -> list[Trajectory]:
    """Two agents on three tasks, one of which was tried twice by the first."""
    names = [("bread-0", 0, "before", 0), ("bread-1", 0, "before", 1), ("hours-0", 1, "before", 0)]
    names += [("mute-0", 2, "before", 0), ("bread-2", 0, "after", 0), ("hours-1", 1, "after", 0)]
    names += [("mute-1", 2, "after", 0)]
    made = []
    for id, goal, agent, attempt in names:
        shots = [screenshot(folder / f"{id}-{n}.png", f"{id} {n}") for n in range(3)]
        steps = tuple(
            Step(
                Observation(shot, f"[1] link 'Basket'\n[2] button 'Pay' {n}", "http://shop/basket"),
                Action("type", "type [1]", point=(0.3, 0.4), value="rye bread")
                if n == 1
                else Action("click", "click [2]", target="button Pay", point=(0.2, 0.36)),
                "The basket is full, so I pay now.",
            )
            for n, shot in enumerate(shots[:2])
        )
        final = Observation(shots[2], "Thank you. Order 117", "http://shop/done", "A receipt.")
        task = Task(id=f"task-{goal}", goal=GOALS[goal], platform="web", site=f"site {goal}")
        made.append(
            Trajectory(
                id=id,
                task=task,
                agent=agent,
                steps=steps,
                final=final,
                answer="Order 117 is placed for $4.20.",
                metadata={"attempt": attempt, "seed": 1} if agent == "before" else {},
            )
        )
    return made


def verdict(item: Trajectory, judge: EvaluatorInfo, success: bool | None) -> Verdict:
    return Verdict(
        id=item.id,
        success=success,
        score=None if success is None else 0.85 if success else 0.1,
        unscored="timeout" if success is None else None,
        reason="" if success is None else "[S2] types the wrong bread; [S3] shows the receipt.",
        evaluator=judge,
        usage=Usage(prompt_tokens=1200, completion_tokens=80, calls=1, images=2, usd=0.0038),
        seconds=2.4,
        steps=(
            StepVerdict(index=0, label="towards", reward=0.5, reason="It opens the basket."),
            StepVerdict(index=1, label="away", reward=-0.5, reason="Another bread."),
        ),
        findings=Findings(
            criteria=(
                Criterion(text="One loaf is ordered", met="met", step=2, reason="See [S3]."),
                Criterion(text="It is rye", weight=2.0, met="not_met", reason="White bread."),
            ),
            process=0.33,
            side_effects=("A newsletter was ordered.",),
            key_points=("one loaf", "rye"),
        ),
        opinions=(Opinion(judge="second look", success=False, score=0.2, reason="No rye."),),
        key=f"{judge.name}-{item.id}",
    )


def write_files(folder: Path) -> None:
    """Writes t.jsonl, labels.jsonl, and vlm.jsonl and rubric.jsonl with transcripts."""
    items = trajectories(folder)
    (folder / "t.jsonl").write_bytes(b"".join(encode_trajectory(one, folder) for one in items))
    said = {"vlm": "tftf?tt", "rubric": "ttfftft"}
    for judge in JUDGES:
        made = [
            verdict(one, judge, {"t": True, "f": False, "?": None}[word])
            for one, word in zip(items, said[judge.name], strict=True)
        ]
        path = folder / f"{judge.name}.jsonl"
        path.write_bytes(b"".join(map(encode, made)))
        with TranscriptLog(transcript_folder(path)) as log:
            for one in made:
                turns = (
                    Turn("system", (f"You are {judge.name}. Judge the run.",)),
                    Turn("user", (f"Goal of {one.id}", ImageFile("bread-0-0.png"))),
                )
                call = Call(
                    model=judge.model or "",
                    messages=turns,
                    reply=f"Verdict of {judge.name}: {one.success}",
                    reasoning="The receipt says white bread.",
                    prompt_tokens=1200,
                    completion_tokens=80,
                    seconds=2.3,
                    attempts=2,
                )
                log.append(Transcript(one.id, one.key, (call,)))
    truth = {"bread-0": False, "bread-1": True, "hours-0": False, "mute-0": False}
    truth |= {"bread-2": True, "hours-1": True, "mute-1": True}
    labels = [
        LabelRecord(id=id, success=success, annotator=who, note=f"note of {who}")
        for id, success in truth.items()
        for who in ("ann", "bob")
    ]
    labels[0] = replace(labels[0], steps=(StepLabel(index=1, label="away"),))
    (folder / "labels.jsonl").write_bytes(b"".join(map(encode, labels)))


def write_pages(folder: Path) -> Path:
    """Writes what the served pages read, and returns the report, which it writes, too."""
    write_files(folder)
    report = folder / "report.html"
    write_report(
        report,
        trajectories(folder),
        read_judges([folder / "vlm.jsonl", folder / "rubric.jsonl"]),
        read_labels(folder / "labels.jsonl"),
        retries=RETRIES,
    )
    write_captions(folder)
    return report


@asynccontextmanager
async def served_view(folder: Path, **options: Any) -> AsyncIterator[str]:
    """Serves the page of `prill view` with labels; `write_files` has made its files."""
    judges = [folder / "vlm.jsonl", folder / "rubric.jsonl"]
    config = ViewConfig(
        trajectories=[folder / "t.jsonl"],
        verdicts=judges,
        labels=[folder / "labels.jsonl"],
        annotator="cleo",
        output=folder / "own.jsonl",
    )
    async with _served(view.run_async, config.copy_with(**options)) as url:
        yield url


@asynccontextmanager
async def served_captions(folder: Path) -> AsyncIterator[str]:
    """Serves the page for captions, from a folder of its own: one page writes the decisions."""
    alone = folder / "alone"
    alone.mkdir()
    write_captions(alone)
    config = ViewConfig(captions=alone / "captions.jsonl", annotator="cleo")
    async with _served(view.run_async, config) as url:
        yield url


def write_captions(folder: Path) -> None:
    """Writes captions.jsonl, with two captions."""
    shots = [screenshot(folder / f"caption-{n}.png", f"page {n}") for n in range(2)]
    captions = [
        Caption(id=image_id(shot), captioner="vlm", image=Path(shot).name, caption="A page.")
        for shot in shots
    ]
    (folder / "captions.jsonl").write_bytes(b"".join(map(encode, captions)))


@asynccontextmanager
async def _served(serve: Callable[..., Awaitable[object]], config: object) -> AsyncIterator[str]:
    stop, opened = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving: asyncio.Future[object] = asyncio.ensure_future(
        serve(config, stop=stop, opened=opened.set_result)
    )
    await asyncio.wait([serving, opened], return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    try:
        yield opened.result()
    finally:
        stop.set()
        await serving
