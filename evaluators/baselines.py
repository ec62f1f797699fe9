"""Baseline judges without a model: constants and the agent's self-report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Annotated

from msgspec import Meta

from prill.actions.ending import agent_claim
from prill.config.values import Config
from prill.errors import NoEvidenceError
from prill.evaluators.claims import parse_stance
from prill.evaluators.judgement import Judgement, make_verdict
from prill.models.prompts import content_hash
from prill.protocols import Evaluator
from prill.types import EvaluatorInfo, LabelRecord, Trajectory, Usage, Verdict


class _WithoutModel:
    """What these judges share: no images, no calls."""

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """None are looked at."""
        return ()

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Nothing is spent."""
        return Usage()


class Constant(_WithoutModel):
    """Gives always the same verdict. Most attempts fail, so "always failure" is often right; a
    judge has to beat it.

    Args:
        success: The verdict.
    """

    def __init__(self, success: bool) -> None:
        self.success = success
        self.info = EvaluatorInfo("always-success" if success else "always-fail", "1")

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict."""
        return await make_verdict(self, trajectory, self._judge)

    async def _judge(self) -> Judgement:
        return Judgement(self.success, float(self.success), "whatever the trajectory")


class SelfReport(_WithoutModel):
    """Takes the agent's word: its own flag (`claimed_success` in the metadata) where the recording
    keeps it, else its answer.

    Without a flag an episode is a success when the agent ended it itself and its answer, if it gave
    one, admits no failure (`evaluators/claims.py`); a failure when it does, after
    report_infeasible, and where the episode ended otherwise, by a step limit say. An answer that
    admits and claims, or in a language that is not read, is unscored.
    """

    info = EvaluatorInfo("self-report", "2")

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict; unscored with `no_evidence` when nothing was done, or the agent's words say
        nothing for certain.
        """
        return await make_verdict(self, trajectory, lambda: self._judge(trajectory))

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        if not trajectory.steps and trajectory.answer is None:
            raise NoEvidenceError("the agent did nothing and said nothing")
        success, why = self._word(trajectory)
        return Judgement(success, float(success), why)

    @staticmethod
    def _word(trajectory: Trajectory) -> tuple[bool, str]:
        if (flag := agent_claim(trajectory.metadata)) is not None:
            return flag, f"the agent's own flag says {'success' if flag else 'failure'}"
        last = trajectory.steps[-1].action if trajectory.steps else None
        if last is not None and last.text.startswith("report_infeasible"):
            return False, "the agent said that it cannot be done"
        if trajectory.answer is not None:
            stance, why = parse_stance(trajectory.answer)
            if stance == "unclear":
                raise NoEvidenceError(why)
            return stance == "claim", why
        if last is not None and last.is_final:
            return True, "the agent said that it was done"
        return False, "the episode ended before the agent said that it was done"


class LabelOracle(_WithoutModel):
    """Gives the labels of one source as verdicts: the upper bound for whatever uses a judge.

    Args:
        labels: The success by trajectory id. None, or no label: the verdict is unscored.
        source: The name of the source, for the record.
    """

    def __init__(self, labels: Mapping[str, bool | None], source: str) -> None:
        self.labels = labels
        labels_hash = content_hash(
            *(part for id, success in sorted(labels.items()) for part in (id, str(success)))
        )
        self.info = EvaluatorInfo("oracle", "1", params={"source": source, "labels": labels_hash})

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict; unscored with `no_evidence` where there is no label, or none that is
        decided.
        """
        return await make_verdict(self, trajectory, lambda: self._judge(trajectory))

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        success = self.labels.get(trajectory.id)
        if success is None:
            raise NoEvidenceError("there is no decided label for this trajectory")
        return Judgement(success, float(success), "the label says so")


def oracle(
    labels: Sequence[LabelRecord], source: str | None = None, truth: str = "majority"
) -> LabelOracle:
    """An oracle from label records; see `prill.io.truth.gold_labels` for several sources and
    annotators.
    """
    from prill.io.truth import gold_labels

    source, gold = gold_labels(labels, source, truth)
    return LabelOracle(gold, source)


@dataclass(frozen=True, kw_only=True)
class NoiseSpec(Config):
    """How a judge errs on purpose. The rates are those of the draws; on few trajectories what comes
    out differs: count it.
    """

    false_positives: Annotated[
        float, Meta(ge=0, le=1, description="share of the failures that it calls successes")
    ] = 0.0
    false_negatives: Annotated[
        float, Meta(ge=0, le=1, description="share of the successes that it calls failures")
    ] = 0.0
    unscored: Annotated[
        float, Meta(ge=0, le=1, description="share of all that it leaves unscored")
    ] = 0.0
    wrong_margin: Annotated[
        float,
        Meta(
            gt=0,
            le=0.5,
            description="how far the scores of wrong verdicts are from 0.5 (0.1: 0.4 and 0.6)",
        ),
    ] = 0.5
    seed: Annotated[int, Meta(description="another seed errs on others")] = 0


class NoisyLabels(_WithoutModel):
    """An oracle that errs on purpose: what a judge of known error rates would do to whatever uses
    it.

    Whether it errs on a trajectory follows from its id and the seed, by SHA-256 (of like ids,
    simple checksums are far from evenly spread). `oracle` is any judge whose word is the truth.
    With a small `wrong_margin` errors are close calls: a success that is called a failure still
    scores above a true failure.
    """

    def __init__(self, oracle: Evaluator, spec: NoiseSpec = NoiseSpec()) -> None:
        self.oracle, self.spec = oracle, spec
        always = ("false_positives", "false_negatives", "seed")
        usual = asdict(NoiseSpec())
        # What is as it was before there was an option is left out, so that older verdicts stay
        # those of the same judge.
        rates = {
            name: value
            for name, value in asdict(spec).items()
            if name in always or value != usual[name]
        }
        self.info = EvaluatorInfo("noisy", "1", params={**oracle.info.params, **rates})

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict; unscored with `no_evidence` where the oracle did not decide, or on
        purpose.
        """
        return await make_verdict(self, trajectory, lambda: self._judge(trajectory))

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        known = await self.oracle(trajectory)
        if known.success is None:
            raise NoEvidenceError(known.reason)
        if self._drawn(f"unscored {trajectory.id}") < self.spec.unscored:
            raise NoEvidenceError("left unscored on purpose")
        rate = self.spec.false_negatives if known.success else self.spec.false_positives
        errs = self._drawn(trajectory.id) < rate
        success = known.success != errs
        margin = self.spec.wrong_margin if errs else 0.5
        return Judgement(
            success,
            0.5 + margin if success else 0.5 - margin,
            "the label with errors on purpose says so",
        )

    def _drawn(self, words: str) -> float:
        """A number from 0 to 1 that is always the same for these words."""
        return (
            int.from_bytes(sha256(f"{self.spec.seed} {words}".encode()).digest()[:8], "big") / 2**64
        )
