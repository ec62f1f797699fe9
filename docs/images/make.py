"""Makes the README's pictures again, from the samples alone: `python docs/images/make.py`. Needs
Chromium and scikit-learn.

The report is the page of `make demo`; Ann's labels, on the annotation page, are made up.
"""

from __future__ import annotations

import asyncio
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

from prill.cli import main
from prill.emulators.browser.chromium import Chromium
from prill.io.store import encode, read_labels
from prill.types import LabelRecord, StepLabel
from prill.ui.serving import serving
from prill.ui.view.label_log import LabelLog
from prill.ui.view.library import Library
from prill.ui.view.session import LabelSession
from prill.ui.view.site import ViewSite

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "datasets" / "samples" / "miniwob"
TRAJECTORIES, ORACLE = SAMPLES / "trajectories.jsonl", SAMPLES / "labels.jsonl"
SHOWN = "miniwob-9e8852cba3"  # one of two fields stays empty, and the agent says that it is done
NOTE, STEPS = (
    "typed twice into the first field",
    (StepLabel(0, "towards"), StepLabel(1, "away"), StepLabel(2, "away")),
)


def ann() -> list[LabelRecord]:
    true = [
        LabelRecord(id=label.id, success=label.success, annotator="Ann")
        for label in read_labels(ORACLE)
    ]
    return [
        LabelRecord(id=SHOWN, success=False, annotator="Ann", note=NOTE, steps=STEPS)
        if label.id == SHOWN
        else label
        for label in true
    ]


def report(folder: Path) -> Path:
    (folder / "ann.jsonl").write_bytes(b"".join(map(encode, ann())))
    judges = [folder / f"{kind}.jsonl" for kind in ("student", "prior")]
    for path in judges:
        model = folder / f"{path.stem}.json"
        how = ("--no-abstain", "--kind", path.stem)
        run("fit", TRAJECTORIES, ORACLE, "-o", model, *how, "--out-of-fold", path)
    out = folder / "r.html"
    shown = ("--verdicts", *judges, "--labels", ORACLE, "--embed")
    run("report", TRAJECTORIES, "-o", out, *shown)
    return out


def run(*words: object) -> None:
    if code := main([str(word) for word in words]):
        raise SystemExit(code)


async def pictures(folder: Path, page: Path) -> None:
    chromium = Chromium()
    try:
        tab = await (await chromium.context(1280, 800)).new_page()
        sharp = await chromium.context(1040, 600, 2)
        first = await sharp.new_page()
        await first.goto(page.as_uri())
        await asyncio.sleep(1)  # waiting for a condition is forbidden by the page's policy
        save(await first.screenshot(), "report.png")
        library = Library(
            [TRAJECTORIES], [folder / "student.jsonl"], [folder / "ann.jsonl"], annotator="Cleo"
        )
        for _ in library.refresh():
            pass
        with LabelLog(folder / "mine.jsonl", "Cleo") as log:
            for label in ann()[: library.places[SHOWN]]:
                success = not label.success if label.id.endswith("9") else label.success
                log.put(LabelRecord(id=label.id, success=success, annotator="Cleo"))
            library.begin_labels(log)
            session = LabelSession(library, log)
            site = ViewSite(library, session, blind=True)
            async with serving(site) as url:
                await tab.goto(url)
                await tab.locator("#outcomes").wait_for()
                for key in ("t", "ArrowRight", "a", "f"):
                    await tab.keyboard.press(key)
                await asyncio.sleep(1)
                save(await tab.screenshot(), "annotate.png")
    finally:
        await chromium.close()


def save(shot: bytes, name: str) -> None:
    Image.open(BytesIO(shot)).convert("RGB").quantize(256, kmeans=4, dither=Image.Dither.NONE).save(
        HERE / name, optimize=True
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(pictures(Path(scratch), report(Path(scratch))))
