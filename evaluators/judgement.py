"""Judgements, their conversion to verdicts, and the base class of judges that call a model."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

from msgspec import Meta

from prill.config.values import Config
from prill.errors import UnscoredError
from prill.evaluators.evidence import BYTES
from prill.evaluators.references import hash_references, read_references
from prill.models.ledger import Meter, metered
from prill.models.prompts import Prompt, content_hash, load_prompt, prompt_set
from prill.protocols import Bounded, Evaluator, Form, LanguageModel, Message
from prill.types import EvaluatorInfo, Findings, StepVerdict, Trajectory, Usage, Verdict

_LATER = {
    "references": None,
    "frames_per_call": 1,
    "distinct": BYTES,
    "citations": False,
    "repeat_frames": True,
}
MAX_TOKENS = 1024  # of a reply, unless a judge needs more
# A path for the judge's main prompt, or a table of prompt names and paths.
PromptFiles = str | dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's conclusion, from which `make_verdict` makes a verdict.

    Args:
        success: Whether the goal was reached.
        score: The probability of success, in [0, 1].
        reason: The reason, in words.
        steps: The judgements of individual steps.
        rewards: One reward for each step.
        findings: Findings in addition to the outcome.
    """

    success: bool
    score: float
    reason: str
    steps: tuple[StepVerdict, ...] | None = None
    rewards: tuple[float, ...] | None = None
    findings: Findings | None = None


async def make_verdict(
    evaluator: Evaluator, trajectory: Trajectory, judge: Callable[[], Awaitable[Judgement]]
) -> Verdict:
    """Runs a judgement and records its outcome and cost. An `UnscoredError` becomes an unscored
    verdict.

    Args:
        evaluator: The judge, for the record.
        trajectory: The trajectory.
        judge: Makes the judgement.

    Returns:
        The verdict. `seconds` excludes the time spent waiting for a free request slot.

    Raises:
        EndpointError: The judge's model cannot be used at all.
        UsageError: The judge cannot be used as described.
    """
    start = time.perf_counter()
    with metered() as meter:
        try:
            judgement = await judge()
        except UnscoredError as failure:
            return Verdict(
                id=trajectory.id,
                unscored=failure.code,
                reason=str(failure),
                usage=meter.usage,
                seconds=_own_seconds(start, meter),
                evaluator=evaluator.info,
            )
    return Verdict(
        id=trajectory.id,
        success=judgement.success,
        score=judgement.score,
        reason=judgement.reason,
        steps=judgement.steps,
        rewards=judgement.rewards,
        findings=judgement.findings,
        usage=meter.usage,
        seconds=_own_seconds(start, meter),
        evaluator=evaluator.info,
    )


def _own_seconds(start: float, meter: Meter) -> float:
    return round(max(0.0, time.perf_counter() - start - meter.queued), 4)


class WithoutModel:
    """Base class of judges that read no images and make no calls."""

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns nothing: the judge reads no screenshots."""
        return ()

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns zero usage."""
        return Usage()


@runtime_checkable
class ClaimReader(Evaluator, Protocol):
    """A judge that states whether it needs the agents' claims."""

    @property
    def needs_claims(self) -> bool:
        """Whether its verdicts would be wrong without the agent's claims."""
        ...


@dataclass(frozen=True, eq=False)
class ModelJudge(ABC):
    """Base class of judges that call a language model: prompts, fingerprint, and unscored verdicts.

    A judge is a frozen dataclass. Its settings are a separate configuration, `spec`, which
    `info.params` records. Subclasses define their name, the type of their spec, their prompt files
    and reply formats, and implement `_judge`.

    Args:
        model: The model that judges.
        spec: The settings.
    """

    model: LanguageModel
    prompt: Annotated[
        PromptFiles,
        Meta(description="File with a prompt of your own, or a table from prompt names to files."),
    ] = field(default=None, kw_only=True)
    spec: Config = field(kw_only=True)

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    # the package with the folder `prompts`
    package: ClassVar[str] = "prill.evaluators"
    prompt_names: ClassVar[tuple[str, ...]]
    main_prompts: ClassVar[tuple[str, ...]]
    # the prompts of the paper's protocol, if the judge supports it
    paper_prompts: ClassVar[tuple[str, ...]] = ()
    forms: ClassVar[tuple[Form, ...]]

    @property
    def reads_probabilities(self) -> bool:
        """Whether scores come from log-probabilities, if the model returns them."""
        return True

    def __post_init__(self) -> None:
        # Report unreadable files now, not at the first trajectory.
        self.prompts  # noqa: B018
        self._references  # noqa: B018

    @cached_property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompts in use, by name."""
        names = self._names()
        main = self.main_prompts if set(self.main_prompts) <= set(names) else names
        return prompt_set(self.package, names, main, self.prompt)

    @cached_property
    def info(self) -> EvaluatorInfo:
        """The judge's identity, which changes whenever its verdicts could."""
        prompt = content_hash(
            *(self.prompts[name].text for name in self._names()),
            *self._form_texts(),
            *self._additions(),
        )
        return EvaluatorInfo(self.name, self._version(), self.model.name, prompt, self._params())

    @property
    def concurrency(self) -> int:
        """The model's maximum number of concurrent requests, or 16 if it has none."""
        return self.model.concurrency if isinstance(self.model, Bounded) else 16

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the verdict; unscored (`no_evidence`) if the judge's input is missing."""
        return await make_verdict(self, trajectory, lambda: self._judge(trajectory))

    @abstractmethod
    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the image files that the verdict depends on."""

    @abstractmethod
    async def _judge(self, trajectory: Trajectory) -> Judgement:
        """Returns the judgement. Raises UnscoredError if there is none."""

    def _version(self) -> str:
        return self.version

    def _names(self) -> tuple[str, ...]:
        return self.prompt_names

    @cached_property
    def _references(self) -> Mapping[str, str] | None:
        """The reference answers, for judges that support them."""
        references: str | Mapping[str, str] | None = getattr(self.spec, "references", None)
        return read_references(references) if isinstance(references, str) else references

    @property
    def _cites(self) -> bool:
        """Whether the model is asked to cite steps."""
        return bool(getattr(self.spec, "citations", False))

    def _additions(self) -> list[str]:
        """Returns the instructions that options add to the first message, such as to cite steps."""
        prompt = load_prompt("prill.evaluators", "citations")
        return [prompt.text.strip()] if self._cites else []

    def _asking(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Returns the messages, the first with the instructions that options add."""
        first, *others = messages
        text, *images = first.parts
        parts = ("\n\n".join([str(text), *self._additions()]), *images)
        return replace(first, parts=parts), *others

    def _params(self) -> dict[str, Any]:
        captioner = getattr(self, "captioner", None)
        params = {} if captioner is None else {"captioner": captioner.name}
        params |= {part.name: getattr(self.spec, part.name) for part in fields(self.spec)}
        # Options are omitted at their defaults, so that verdicts written before they existed keep
        # their keys.
        for name, default in _LATER.items():
            if name in params and params[name] == default:
                del params[name]
        if self._references is not None:
            params["references"] = hash_references(self._references)
        return params

    def _form_texts(self) -> list[str]:
        return [
            form.instructions(as_json=as_json) for form in self.forms for as_json in (True, False)
        ]
