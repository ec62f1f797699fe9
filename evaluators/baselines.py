"""Judges without a model, for comparison: constants, and the agent's own word."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256

from prill.errors import NoEvidence
from prill.evaluators.judgement import Judgement, verdict_of
from prill.models.prompts import content_hash
from prill.types import EvaluatorInfo, LabelRecord, Trajectory, Usage, Verdict

# An answer that says nothing was found or done, as agents of WebArena and its kin word it.
_NO_ANSWER = re.compile(
    r"\W*(n/?a|none|null|unknown|error|fail(ed|ure)?|impossible|infeasible|early stop|max(imum)? steps)\b", re.IGNORECASE
)


class _WithoutModel:
    """What these judges share: no images, no calls."""

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """None are looked at."""
        return ()

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Nothing is spent."""
        return Usage()


class Constant(_WithoutModel):
    """Always the same verdict. Most attempts fail, so "always failure" is often right; a judge has to beat it."""

    def __init__(self, success: bool) -> None:
        self.success = success
        self.info = EvaluatorInfo("always-success" if success else "always-fail", "1")

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict."""
        return await verdict_of(self, trajectory, self._judge)

    async def _judge(self) -> Judgement:
        return Judgement(self.success, float(self.success), "whatever the trajectory")


class SelfReport(_WithoutModel):
    """Takes the agent's word: success when it ended the episode itself and its answer, if it gave one, is no admission.

    An answer is an admission when it is empty or begins with words such as N/A, error or impossible; so is the action
    report_infeasible. An episode that ended otherwise, by a step limit say, is a failure.
    """

    info = EvaluatorInfo("self-report", "1")

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict; unscored with `no_evidence` when nothing was done."""
        return await verdict_of(self, trajectory, lambda: self._judge(trajectory))

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        if not trajectory.steps and trajectory.answer is None:
            raise NoEvidence("the agent did nothing and said nothing")
        success, why = self._word(trajectory)
        return Judgement(success, float(success), why)

    @staticmethod
    def _word(trajectory: Trajectory) -> tuple[bool, str]:
        last = trajectory.steps[-1].action if trajectory.steps else None
        if last is not None and last.text.startswith("report_infeasible"):
            return False, "the agent said that it cannot be done"
        if trajectory.answer is not None:
            if not trajectory.answer.strip() or _NO_ANSWER.match(trajectory.answer):
                return False, "the agent's answer admits that it failed"
            return True, "the agent gave an answer"
        if last is not None and last.is_final:
            return True, "the agent said that it was done"
        return False, "the episode ended before the agent said that it was done"


class LabelOracle(_WithoutModel):
    """Gives the labels of one source as verdicts: the upper bound for whatever uses a judge. `labels` maps ids to success."""

    def __init__(self, labels: Mapping[str, bool | None], source: str) -> None:
        self.labels = labels
        labels_hash = content_hash(*(part for id, success in sorted(labels.items()) for part in (id, str(success))))
        self.info = EvaluatorInfo("oracle", "1", params={"source": source, "labels": labels_hash})

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict; unscored with `no_evidence` where there is no label, or none that is decided."""
        return await verdict_of(self, trajectory, lambda: self._judge(trajectory))

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        success = self.labels.get(trajectory.id)
        if success is None:
            raise NoEvidence("there is no decided label for this trajectory")
        return Judgement(success, float(success), "the label says so")


def oracle(labels: Sequence[LabelRecord], source: str | None = None, truth: str = "majority") -> LabelOracle:
    """An oracle from label records; see `prill.labels.truth.gold_labels` for several sources and annotators."""
    from prill.labels.truth import gold_labels

    source, gold = gold_labels(labels, source, truth)
    return LabelOracle(gold, source)


class NoisyLabels(_WithoutModel):
    """An oracle that errs on purpose: what a judge of known error rates would do to whatever uses it.

    Whether it errs on a trajectory follows from its id and the seed, by SHA-256 (of like ids, simple checksums are far from
    evenly spread). On few trajectories the rates that come out differ from those asked for: count them.
    """

    def __init__(self, oracle: LabelOracle, false_positives: float, false_negatives: float, seed: int = 0) -> None:
        self.oracle, self.false_positives, self.false_negatives, self.seed = oracle, false_positives, false_negatives, seed
        rates = {"false_positives": false_positives, "false_negatives": false_negatives, "seed": seed}
        self.info = EvaluatorInfo("noisy", "1", params={**oracle.info.params, **rates})

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict; unscored with `no_evidence` where there is no label, or none that is decided."""
        return await verdict_of(self, trajectory, lambda: self._judge(trajectory))

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        truth = self.oracle.labels.get(trajectory.id)
        if truth is None:
            raise NoEvidence("there is no decided label for this trajectory")
        drawn = int.from_bytes(sha256(f"{self.seed} {trajectory.id}".encode()).digest()[:8], "big") / 2**64
        success = drawn >= self.false_negatives if truth else drawn < self.false_positives
        return Judgement(success, float(success), "the label with errors on purpose says so")
