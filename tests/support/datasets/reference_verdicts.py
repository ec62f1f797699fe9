"""The recorded replies of reference judges in the development data of AgentRewardBench."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike

from prill.datasets.reading.records import find_rows, read_rows
from prill.errors import UnparsableError, UsageError
from prill.io.store import BadLine
from prill.models.replies import ReplyFormat
from prill.types import EvaluatorInfo, Usage, Verdict

_REPLY = ReplyFormat("thoughts", "status", ("success", "failure"))


@dataclass(frozen=True)
class _Usage:
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class _Reference:
    verdict: str | None = None
    text: str | None = None
    model: str | None = None
    usage: _Usage = _Usage()


@dataclass(frozen=True)
class _Row:
    id: str
    reference_judges: dict[str, _Reference] = field(default_factory=dict)


def load_reference_verdicts(
    folder: str | PathLike[str], judge: str, *, as_recorded: bool = False
) -> Iterator[Verdict | BadLine]:
    """Loads a reference judge's recorded replies, such as `webjudge_7B`, parsed as prill does.

    A reply without a verdict is unscored. `as_recorded` uses the verdict recorded with the reply
    instead. Raises UsageError, after the last row, if the folder has no such judge.
    """
    others: set[str] = set()
    present = False
    for row in read_rows(find_rows(folder, "labels"), _Row, lambda row: [row]):
        if isinstance(row, BadLine):
            yield row
        elif reference := row.reference_judges.get(judge):
            present = True
            yield _reference_verdict(row.id, judge, reference, as_recorded)
        else:
            others.update(row.reference_judges)
    if not present:
        raise UsageError(
            f"{folder}: unknown judge {judge!r}; expected one of "
            f"{', '.join(sorted(others)) or 'none'}"
        )


def _reference_verdict(id: str, judge: str, reference: _Reference, as_recorded: bool) -> Verdict:
    evaluator = EvaluatorInfo(judge, "recorded", reference.model)
    usage = Usage(1, reference.usage.prompt_tokens, reference.usage.completion_tokens, usd=None)
    text = reference.text or ""
    try:
        fields = _REPLY.parse(f"status: {reference.verdict}" if as_recorded else text)
    except UnparsableError as error:
        return Verdict(id=id, unscored="parse", reason=str(error), usage=usage, evaluator=evaluator)
    success = fields["status"] == "success"
    reason = text if as_recorded else fields["thoughts"]
    return Verdict(
        id=id,
        success=success,
        score=float(success),
        reason=reason,
        usage=usage,
        evaluator=evaluator,
    )
