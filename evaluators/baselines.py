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
from prill.evaluators.judgement import Baseline, Judgement
from prill.models.prompts import content_hash
from prill.protocols import Evaluator
from prill.types import EvaluatorInfo, LabelRecord, Trajectory


class Constant(Baseline):
    """A judge that always returns the same verdict.

    Most attempts fail, so "always failure" is often right; any other judge has to beat it.
    """

    def __init__(self, success: bool) -> None:
        self.success = success
        self.info = EvaluatorInfo("always-success" if success else "always-fail", "1")

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        return Judgement(self.success, float(self.success), "whatever the trajectory")


class SelfReport(Baseline):
    """A judge that believes the agent's claim: the flag `claimed_success` in the metadata, else its
    answer.

    Without the flag, an episode is a success if the agent ended it and its answer, if any, admits
    no failure (`evaluators/claims.py`). It is a failure if the answer admits one, after
    report_infeasible, or if the episode ended for another reason, such as a step limit. It is
    unscored if the answer contains both an admission and a claim, or is in an unsupported language.
    """

    info = EvaluatorInfo("self-report", "3")

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


class LabelOracle(Baseline):
    """A judge that returns the labels of one source: the upper bound for any judge.

    Args:
        labels: The success by trajectory id. If it is None or missing, the verdict is unscored.
        source: The name of the source, for the record.
    """

    def __init__(self, labels: Mapping[str, bool | None], source: str) -> None:
        self.labels = labels
        labels_hash = content_hash(
            *(part for id, success in sorted(labels.items()) for part in (id, str(success)))
        )
        self.info = EvaluatorInfo("oracle", "1", params={"source": source, "labels": labels_hash})

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        success = self.labels.get(trajectory.id)
        if success is None:
            raise NoEvidenceError("there is no decided label for this trajectory")
        return Judgement(success, float(success), "the label says so")


def oracle(
    labels: Sequence[LabelRecord], source: str | None = None, truth: str = "majority"
) -> LabelOracle:
    """Returns an oracle for label records.

    `prill.io.truth.gold_labels` describes how several sources and annotators are handled.
    """
    from prill.io.truth import gold_labels

    source, gold = gold_labels(labels, source, truth)
    return LabelOracle(gold, source)


@dataclass(frozen=True, kw_only=True)
class NoiseSpec(Config):
    """Error rates of a noisy judge. On few trajectories the realised rates deviate from them."""

    false_positives: Annotated[
        float, Meta(ge=0, le=1, description="Share of failures that are judged a success.")
    ] = 0.0
    false_negatives: Annotated[
        float, Meta(ge=0, le=1, description="Share of successes that are judged a failure.")
    ] = 0.0
    unscored: Annotated[
        float, Meta(ge=0, le=1, description="Share of all trajectories that are left unscored.")
    ] = 0.0
    wrong_margin: Annotated[
        float,
        Meta(
            gt=0,
            le=0.5,
            description="Distance of the scores of wrong verdicts from 0.5 (0.1: 0.4 and 0.6).",
        ),
    ] = 0.5
    seed: Annotated[
        int, Meta(description="Seed that selects the trajectories with wrong verdicts.")
    ] = 0


class NoisyLabels(Baseline):
    """An oracle with errors at known rates.

    The trajectory's id and the seed determine whether it errs, by SHA-256; simple checksums of
    similar ids are not uniform. `oracle` is any judge whose verdicts count as the truth. With a
    small `wrong_margin`, errors have scores near the threshold: a success that is called a failure
    still scores above a true failure.
    """

    def __init__(self, oracle: Evaluator, spec: NoiseSpec = NoiseSpec()) -> None:
        self.oracle, self.spec = oracle, spec
        always = ("false_positives", "false_negatives", "seed")
        usual = asdict(NoiseSpec())
        # Options at their default are omitted, so that verdicts written before the option existed
        # keep their fingerprint.
        rates = {
            name: value
            for name, value in asdict(spec).items()
            if name in always or value != usual[name]
        }
        self.info = EvaluatorInfo("noisy", "1", params={**oracle.info.params, **rates})

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

    def _drawn(self, key: str) -> float:
        """Returns a number from 0 to 1 that depends only on the text."""
        return (
            int.from_bytes(sha256(f"{self.spec.seed} {key}".encode()).digest()[:8], "big") / 2**64
        )
