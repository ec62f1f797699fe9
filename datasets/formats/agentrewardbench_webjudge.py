"""Reads AgentRewardBench runs with captions and key screenshots of a WebJudge log (arXiv
2504.08942, 2504.01382).

The folder holds `trajectories.jsonl.gz`, `labels.jsonl.gz` and `images/`. The captions were written
by a judge that knew the task, and only frames that this judge found relevant have a screenshot. The
presence of a screenshot therefore leaks the outcome and must never be a feature. The judge's scores
and key points are omitted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from prill.datasets.reading.browsergym import (
    BrowserGymTurn,
    Summary,
    build_steps,
    oracle_label,
    plain_task_id,
)
from prill.datasets.reading.records import Record, find_rows, image_in, read_rows
from prill.datasets.reading.sources import Source
from prill.io.store import BadLine
from prill.types import LabelRecord, Observation, StrPath, Task, Trajectory

_HEADING = re.compile(r"\A[\s#*]*Reasoning[\s*:]*(?=\S)", re.IGNORECASE)
# "### Score: 4", "**Score**: 1", "### Score\n5 - because …": a description ends with the judge's
# grade and its explanation.
_GRADE = re.compile(r"(?:^|\n)[\s#*]*Score\b[\s*:]*(?:[0-5]\b.*)?\Z", re.IGNORECASE | re.DOTALL)


class _Step(Record):
    action: str | None = None
    reasoning: str | None = None
    caption: str | None = None
    screenshot: str | None = None


class _Row(Record):
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


class _Annotation(Record):
    annotator: str
    success: str


class _Labels(Record):
    id: str
    human: tuple[_Annotation, ...] = ()
    oracle_reward: float | None = None


def recognise(source: Source) -> bool:
    """Returns whether the source is a folder with rows that name benchmark, agent, task and
    goal.
    """
    wanted = {"id", "benchmark", "agent", "task_id", "goal", "steps"}
    return source.is_folder and any(
        wanted <= file.keys for file in source.files("trajectories.jsonl", "trajectories.jsonl.gz")
    )


def load(folder: StrPath) -> Iterator[Trajectory | BadLine]:
    """Yields every run, without its outcome.

    `site` is the benchmark; task ids lose `.improved` and `.resized`.
    """
    return read_rows(
        find_rows(folder, "trajectories"), _Row, lambda row: [_trajectory(row, folder)]
    )


def load_labels(folder: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields one label of source `human` for each annotator, and one of source `oracle`.

    Success is a reward of 0.5 or more.

    A few rewards are fractions; the label's note keeps them.
    """
    return read_rows(find_rows(folder, "labels"), _Labels, _labels)


def _labels(row: _Labels) -> Iterator[LabelRecord]:
    outcomes = {"Successful": True, "Unsuccessful": False}
    for opinion in row.human:
        yield LabelRecord(
            id=row.id,
            success=outcomes.get(opinion.success),
            source="human",
            annotator=opinion.annotator,
        )
    if label := oracle_label(row.id, Summary(cum_reward=row.oracle_reward)):
        yield label


def description(caption: str) -> str:
    """Returns a caption without the judge's heading and grade."""
    return _HEADING.sub("", _GRADE.sub("", caption)).strip()


def _trajectory(row: _Row, folder: StrPath) -> Trajectory:
    steps, final, answer = build_steps(
        [
            BrowserGymTurn(_observation(step, folder), step.action, step.reasoning)
            for step in row.steps
        ]
    )
    extra = {
        "benchmark_task_id": row.task_id,
        "terminated": row.terminated,
        "truncated": row.truncated,
        "agent_cost_usd": row.agent_cost_usd,
        "caption_source": row.caption_source,
    }
    return Trajectory(
        id=row.id,
        task=Task(id=plain_task_id(row.task_id), goal=row.goal, platform="web", site=row.benchmark),
        agent=row.agent,
        steps=steps,
        final=final,
        answer=answer,
        metadata={key: value for key, value in extra.items() if value is not None},
    )


def _observation(step: _Step, folder: StrPath) -> Observation:
    return Observation(
        screenshot=image_in(folder, step.screenshot) if step.screenshot else None,
        caption=(description(step.caption) or None) if step.caption else None,
    )
