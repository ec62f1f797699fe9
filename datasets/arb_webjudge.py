"""AgentRewardBench runs with the captions and key screenshots of a WebJudge log (arXiv 2504.08942, 2504.01382).

The folder holds `trajectories.jsonl.gz`, `labels.jsonl.gz` and `images/`. The captions were written by a judge that knew
the task, and only frames which that judge found relevant have a screenshot: whether one is there says something about
the outcome. Its scores and key points are left out here; never use the presence of a screenshot as a feature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike

from prill.datasets.browsergym_actions import parse_action
from prill.datasets.rows import find_rows, image_in, read_rows
from prill.store import BadLine
from prill.types import LabelRecord, Observation, Step, Task, Trajectory

_VARIANT = re.compile(r"\.(improved|resized)(?=\.|$)")
_HEADING = re.compile(r"\A[\s#*]*Reasoning[\s*:]*(?=\S)", re.IGNORECASE)
# "### Score: 4", "**Score**: 1", "### Score\n5 - because …": the judge's grade, and what it says about it, end a description.
_GRADE = re.compile(r"(?:^|\n)[\s#*]*Score\b[\s*:]*(?:[0-5]\b.*)?\Z", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class _Step:
    action: str | None = None
    reasoning: str | None = None
    caption: str | None = None
    screenshot: str | None = None


@dataclass(frozen=True)
class _Row:
    id: str
    benchmark: str
    agent: str
    task_id: str
    goal: str
    steps: tuple[_Step, ...]
    terminated: bool | None = None
    truncated: bool | None = None
    agent_cost_usd: float | None = None
    caption_source: str | None = None


@dataclass(frozen=True)
class _Opinion:
    annotator: str
    success: str


@dataclass(frozen=True)
class _Labels:
    id: str
    human: tuple[_Opinion, ...] = ()
    oracle_reward: float | None = None


def load(folder: str | PathLike[str]) -> Iterator[Trajectory | BadLine]:
    """Every run, without its outcome. `site` is the benchmark; task ids come without `.improved` and `.resized`."""
    return read_rows(find_rows(folder, "trajectories"), _Row, lambda row: [_trajectory(row, folder)])


def load_labels(folder: str | PathLike[str]) -> Iterator[LabelRecord | BadLine]:
    """One label of source `human` for each annotator, and one of source `oracle`: success is a reward of 0.5 or more.

    A few rewards are fractions; the label's note keeps them.
    """
    return read_rows(find_rows(folder, "labels"), _Labels, _labels)


def _labels(row: _Labels) -> Iterator[LabelRecord]:
    words = {"Successful": True, "Unsuccessful": False}
    for opinion in row.human:
        yield LabelRecord(id=row.id, success=words.get(opinion.success), source="human", annotator=opinion.annotator)
    if row.oracle_reward is not None:
        note = None if row.oracle_reward in (0.0, 1.0) else f"reward {row.oracle_reward:g}"
        yield LabelRecord(id=row.id, success=row.oracle_reward >= 0.5, source="oracle", note=note)


def description(caption: str) -> str:
    """A caption without the heading and the grade that the judge put around it."""
    return _HEADING.sub("", _GRADE.sub("", caption)).strip()


def _trajectory(row: _Row, folder: str | PathLike[str]) -> Trajectory:
    steps = []
    final = None
    for i, raw in enumerate(row.steps):
        observation = Observation(
            screenshot=image_in(folder, raw.screenshot) if raw.screenshot else None,
            caption=(description(raw.caption) or None) if raw.caption else None,
        )
        if raw.action is None and i == len(row.steps) - 1:
            final = observation
        else:
            steps.append(Step(observation, parse_action(raw.action or ""), raw.reasoning))
    # A message ends the episode only where nothing follows it.
    said = [step.action for step in steps if step.action.is_final]
    steps[:-1] = [_not_final(step) for step in steps[:-1]]
    extra = {
        "benchmark_task_id": row.task_id,
        "terminated": row.terminated,
        "truncated": row.truncated,
        "agent_cost_usd": row.agent_cost_usd,
        "caption_source": row.caption_source,
    }
    return Trajectory(
        id=row.id,
        task=Task(id=_VARIANT.sub("", row.task_id), goal=row.goal, platform="web", site=row.benchmark),
        agent=row.agent,
        steps=tuple(steps),
        final=final,
        answer=said[-1].value if said else None,
        metadata={key: value for key, value in extra.items() if value is not None},
    )


def _not_final(step: Step) -> Step:
    return replace(step, action=replace(step.action, kind="message")) if step.action.is_final else step
