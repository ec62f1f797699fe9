"""Tasks and episodes for the tests of WebArena and its oracle."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from prill.datasets.webarena_tasks import Mode, TaskConfig, read_configs
from prill.types import Action, Observation, Step, Task, Trajectory

MODES: tuple[Mode, Mode] = ("paper", "fixed")


def config(
    *kinds: str, number: int = 0, start_url: str = "http://shop", **checks: Any
) -> TaskConfig:
    """Returns a task with these graders."""
    record = {
        "sites": ["shopping"],
        "task_id": number,
        "require_login": False,
        "storage_state": None,
        "start_url": start_url,
        "geolocation": None,
        "intent_template": "t",
        "instantiation_dict": {},
        "intent": "How many bands?",
        "require_reset": False,
        "intent_template_id": 1,
        "eval": {"eval_types": list(kinds), **checks},
    }
    return read_configs(json.dumps([record]).encode(), {})[0]


def ended(answer: str | None = None, url: str | None = None, **more: Any) -> Trajectory:
    """Returns an episode of task 0 that ended with this answer at this address."""
    step = Step(Observation(url="http://shop/before"), Action("stop", "stop"))
    record = Trajectory(
        id="one", task=Task(id="webarena.0", goal="g"), steps=(step,), answer=answer
    )
    return replace(record, final=Observation(url=url) if url else None, **more)
