"""Two judges who disagree, labels, and small images."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from prill.types import EvaluatorInfo, LabelRecord, Step, Task, Trajectory, Verdict
from prill.ui.report.entries import Judge

FIRST, SECOND = EvaluatorInfo("first", "1", "m"), EvaluatorInfo("second", "1", "m")
TRUTH = {"a": True, "b": False, "c": True, "d": False, "e": True, "f": None}
#          what the first judge says, what the second says
SAID = {
    "a": (True, True),
    "b": (True, False),
    "c": (False, False),
    "d": (False, False),
    "e": (None, True),
    "f": (True, True),
}


def trajectory(id: str, steps: Sequence[Step] = (), **changes: Any) -> Trajectory:
    task = Task(
        id=f"task-{id}",
        goal=f"Find the {3 * id} entry",
        platform="web",
        site="shop" if id in "ab" else "wiki",
    )
    return replace(Trajectory(id=id, task=task, agent="robot", steps=tuple(steps)), **changes)


def verdict(id: str, success: bool | None, judge: EvaluatorInfo = FIRST, **more: Any) -> Verdict:
    unscored: Any = "timeout" if success is None else None
    score = None if success is None else 0.9 if success else 0.2
    return Verdict(
        id=id,
        success=success,
        score=score,
        unscored=unscored,
        reason=f"because {id}",
        evaluator=judge,
        **more,
    )


def judges(**more: Any) -> list[Judge]:
    return [
        Judge(
            "first", FIRST, {id: verdict(id, outcomes[0], **more) for id, outcomes in SAID.items()}
        ),
        Judge(
            "second",
            SECOND,
            {id: verdict(id, outcomes[1], SECOND) for id, outcomes in SAID.items()},
        ),
    ]


def labels() -> list[LabelRecord]:
    return [LabelRecord(id=id, success=truth) for id, truth in TRUTH.items()]


def picture(folder: Path, name: str, size: tuple[int, int] = (640, 360)) -> str:
    folder.mkdir(exist_ok=True)
    Image.new("RGB", size, "#4477aa").save(folder / name)
    return str(folder / name)


def blocks(page: Path) -> dict[str, str]:
    scripts = re.findall(
        r'<script type="[a-z/]+" id="([\w-]+)">(.*?)</script>', page.read_text("utf-8"), re.DOTALL
    )
    return dict(scripts)


def overview(page: Path) -> Any:
    return json.loads(blocks(page)["overview"])
