"""Dry run of captioning: counts and cost, without calling a model or writing a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prill.captioner.bulk import expect_pictures, screenshots_in
from prill.captioner.cache import image_id
from prill.captioner.files import read_captions
from prill.captioner.vision import VLMCaptioner
from prill.errors import InputError, UsageError
from prill.io.outputs import check_output
from prill.io.verdict_log import lasts
from prill.models.calls import planned
from prill.protocols import Captioner
from prill.types import StrPath, Usage


@dataclass(frozen=True, slots=True)
class CaptionPlan:
    """The plan of a captioning run.

    `todo` counts pictures to caption, `kept` those that have a caption, and `equal` files with the
    same content as another file.

    `usage` excludes the cost and is None if it is unknown. `problems` describes the inputs that
    cannot be used.
    """

    todo: int
    kept: int
    equal: int
    usage: Usage | None
    problems: tuple[str, ...]


def plan_captions(
    paths: Sequence[StrPath],
    captioner: Captioner,
    output: StrPath,
    *,
    last: int | None = None,
    limit: int | None = None,
    resume: bool = True,
    retry_unscored: bool = False,
) -> CaptionPlan:
    """Returns the plan of `prill.captioner.bulk.caption_files` with the same arguments.

    Raises the errors that `caption_files` raises before the first request.
    """
    expect_pictures(captioner)
    kept, todo, equal, usage, problems, begun = 0, 0, 0, Usage(), list[str](), set[str]()
    with screenshots_in(paths, last=last, limit=limit) as (pictures, tally):
        check_output(output, "captions", paths, continued=resume)
        there = _lasting(output, captioner, retry_unscored) if resume else frozenset()
        problems += tally.problems
        for picture in pictures():
            try:
                id = image_id(picture.path)
                if id in begun:
                    equal += 1
                    continue
                begun.add(id)
                if id in there:
                    kept += 1
                    continue
                if isinstance(captioner, VLMCaptioner):
                    usage += planned(captioner.messages(picture.path), captioner.max_tokens)
                todo += 1
            except InputError as error:
                problems.append(str(error))
    known = isinstance(captioner, VLMCaptioner) or not hasattr(captioner, "model")
    return CaptionPlan(todo, kept, equal, usage if known else None, tuple(problems))


def _lasting(output: StrPath, captioner: Captioner, retry_unscored: bool) -> frozenset[str]:
    """Returns the pictures whose line in the file would be kept."""
    if not os.path.exists(output) or not Path(output).stat().st_size:
        return frozenset()
    latest = {caption.id: caption for caption in read_captions(output)}
    if other := next(
        (caption.captioner for caption in latest.values() if caption.captioner != captioner.name),
        None,
    ):
        raise UsageError(
            f"{output}: contains captions of {other}; choose another file", parameters=("output",)
        )
    return frozenset(
        id for id, one in latest.items() if lasts(one.unscored, retry_unscored=retry_unscored)
    )
