"""Guards a judge that was trained on labelled runs against runs unlike these."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import msgspec

from prill.errors import NoEvidenceError, UsageError
from prill.evaluators.fitted.features import read
from prill.evaluators.fitted.guard import NoveltyGuard
from prill.evaluators.fitted.overlap import FittedRuns, worst
from prill.evaluators.wrappers.rewritten import Rewritten
from prill.io.lines import read_json
from prill.models.prompts import content_hash
from prill.protocols import Evaluator
from prill.types import Trajectory, Verdict

FORMAT = "prill guard 1"


@dataclass(frozen=True, kw_only=True)
class GuardFile:
    """The guard file of `prill train judge`: the range of the training runs' last states (None:
    there was no text), and digests of the runs and of their tasks.
    """

    format: str = FORMAT
    guard: NoveltyGuard | None
    fitted_to: FittedRuns

    @property
    def hash(self) -> str:
        """The content hash."""
        return content_hash(msgspec.json.encode(self).decode())


def read_guard(path: str | os.PathLike[str]) -> GuardFile:
    """Reads a file that `prill train judge` wrote. Raises UsageError if it cannot be read, or is no
    guard of this version.
    """
    found = read_json(path, GuardFile, "not a guard", "`prill train judge` writes such a file")
    if found.format != FORMAT:
        raise UsageError(
            f"{path}: the guard was made by another version of prill; train the judge again"
        )
    return found


class Guarded(Rewritten):
    """A judge that abstains on runs unlike its training runs, which the guard file describes. Each
    verdict records the relation of its run to the training runs.
    """

    def __init__(self, judge: Evaluator, known: GuardFile) -> None:
        super().__init__(judge, self._checked, {"guard": known.hash})
        self.known = known

    async def _checked(self, trajectory: Trajectory) -> Trajectory:
        """Returns the run unchanged. Raises NoEvidenceError if it is unlike the training runs."""
        guard = self.known.guard
        if guard is not None and trajectory.steps:
            objection = guard.objection(read(trajectory, "student", evidence_only=False))
            if objection is not None:
                raise NoEvidenceError(f"the run is unlike the judge's training runs: {objection}")
        return trajectory

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the judge's verdict with the run's relation to the training runs."""
        verdict = await super().__call__(trajectory)
        own = self.known.fitted_to.relation(trajectory)
        return replace(verdict, fitted_on=worst((verdict.fitted_on, own)))
