"""Reads and applies Mind2Web's score files, a ranker's scores of every candidate: `{"scores":
{sample: {node: score}}, "ranks": …}`.

A sample is a step: the id of its turn, `_`, and the `action_uid` of its action. Rank 0 is the best.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from prill.errors import InputError
from prill.io.lines import open_lines
from prill.papers.mind2web.pages.state import read_state
from prill.types import Step, Trajectory

Scores = Mapping[str, Mapping[str, float]]


class _File(msgspec.Struct):
    scores: dict[str, dict[str, float]]


def sample_ids(trajectory: Trajectory) -> tuple[str, ...]:
    """Returns the sample ids of a turn's steps in a score file. Raises InputError if the turn is
    not from Mind2Web.
    """
    uids = trajectory.metadata.get("uids")
    if not isinstance(uids, list | tuple) or len(uids) != len(trajectory.steps):
        raise InputError(
            f"{trajectory.id}: metadata.uids has no id for each of the {len(trajectory.steps)} "
            "steps; convert the data again"
        )
    return tuple(f"{trajectory.id}_{uid}" for uid in uids)


def with_scores(trajectory: Trajectory, scores: Scores) -> Trajectory:
    """Returns the turn with its candidates in the order of these scores. Candidates without a score
    come last, in their original order.
    """
    steps = [
        _ordered(step, scores.get(sample))
        for step, sample in zip(trajectory.steps, sample_ids(trajectory), strict=True)
    ]
    return replace(trajectory, steps=tuple(steps))


def by_score(candidates: tuple[str, ...], scores: Mapping[str, float]) -> tuple[str, ...]:
    """Sorts the candidates, the best first. Ties and candidates without a score keep their
    order.
    """
    return tuple(sorted(candidates, key=lambda id: -scores.get(id, float("-inf"))))


def read_scores(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """Reads the scores of a JSON file, plain or gzip. Raises InputError if the file is not a score
    file.
    """
    try:
        with open_lines(path) as file:
            return msgspec.json.decode(file.read(), type=_File).scores
    except (
        OSError,
        EOFError,
        zlib.error,
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
    ) as error:
        raise InputError(
            f'{path}: not a score file of the form {{"scores": {{sample: {{node: score}}}}}}: '
            f"{error}"
        ) from None


def _ordered(step: Step, scores: Mapping[str, float] | None) -> Step:
    if not scores:
        return step
    state = read_state(step.observation.text or "")
    ranked = replace(state, candidates=by_score(state.candidates, scores))
    return replace(step, observation=replace(step.observation, text=ranked.text()))
