"""MindAct (Mind2Web, arXiv 2306.06070) and Self-MAP (ACL 2024): which candidate of a recorded page is acted on next, and how.

The candidates meet in groups, and whoever the model chooses meets the next ones. Earlier turns of the conversation, always as
they were recorded, are shown before the page. Both agents are one class: Self-MAP is MindAct with the four switches of its
paper on. What the papers' code does otherwise: the shuffling is seeded, an element without an id is found by its text, a letter
beyond the choices passes its group only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from prill.protocols import LanguageModel, Message
from prill.types import Observation, Platform, Step, Task, Trajectory

Form = Literal["choice", "generation"]
History = Literal["none", "all", "fixed", "turns", "matched"]
Order = Literal["relevance", "relevance_reversed", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MindActSpec:
    """What is shown of earlier turns, how the model answers, and how much it reads. Numbers are those of Self-MAP's code."""

    form: Annotated[Form, Meta(description="the model answers with a letter, or writes the element")] = "choice"
    history: Annotated[
        History,
        Meta(description="earlier steps shown: none, all, those of the first 3 turns, of the most similar turns, or the matched"),
    ] = "all"
    snippets: Annotated[int, Meta(ge=1, description="most turns, or groups of like steps, that are matched")] = 3
    history_order: Annotated[Order, Meta(description="the order of what was matched: the nearest first, last, or by time")] = (
        "relevance"
    )
    match_pages: Annotated[bool, Meta(description="pages count when steps are matched (the paper: worse)")] = False
    embedder: Annotated[
        str, Meta(description="how texts are compared: tfidf, minilm, local:DIR, or a model's name at an endpoint")
    ] = "tfidf"
    embedder_url: Annotated[str | None, Meta(description="the endpoint of the embedder (default $OPENAI_BASE_URL)")] = None
    simplification: Annotated[bool, Meta(description="earlier pages are cut around a few candidates, not all")] = False
    refinement: Annotated[
        bool | None, Meta(description="earlier answers have a sentence why (default: where those come from is named)")
    ] = None
    rationales: Annotated[Path | None, Meta(description="JSON-lines file that keeps these sentences")] = None
    rewrites: Annotated[Path | None, Meta(description="JSON-lines file that keeps instructions that stand alone")] = None
    prompted: Annotated[bool, Meta(description="for a chat model: with three examples; else for one trained on this form")] = (
        False
    )
    group: Annotated[int, Meta(ge=2, le=25, description="candidates that are shown together")] = 5
    pool: Annotated[int, Meta(ge=1, description="best candidates that take part")] = 50
    previous: Annotated[int, Meta(ge=0, description="earlier actions of the turn that are told")] = 5
    part_tokens: Annotated[
        int | None, Meta(ge=16, description="most tokens of a page, a question or an answer (default: 512; prompted: any)")
    ] = None
    total_tokens: Annotated[int, Meta(ge=32, description="tokens of all together, which bounds what is shown of earlier steps")] = (
        2048
    )
    truncate: Annotated[Literal["token", "snippet"], Meta(description="the earliest go token by token, or step by step")] = "token"
    tokenizer: Annotated[
        str | None, Meta(description="folder of a tokenizer for transformers (default: that of the model's folder, else about)")
    ] = None
    max_tokens: Annotated[int, Meta(ge=1, description="tokens of one answer")] = 50
    neg_ratio: Annotated[float, Meta(ge=0, le=1, description="training: share of the draws without the right element")] = 0.2
    draw: Annotated[int, Meta(ge=0, description="training: another draw has other candidates")] = 0
    seed: Annotated[int, Meta(description="another seed shuffles otherwise")] = 123


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfMAPSpec(MindActSpec):
    """The best variant of the paper: the model writes the element, and sees earlier steps that match, on short pages."""

    form: Annotated[Form, Meta(description="the model answers with a letter, or writes the element")] = "generation"
    history: Annotated[
        History,
        Meta(description="earlier steps shown: none, all, those of the first 3 turns, of the most similar turns, or the matched"),
    ] = "matched"
    simplification: Annotated[bool, Meta(description="earlier pages are cut around a few candidates, not all")] = True


class MindAct:
    """Reads states of recorded pages (`prill.pages.state`) and earlier turns in `task.earlier`; does one action a step.

    Where nothing was chosen the action is of kind `none`. `rationale_model` writes why earlier answers were right, and
    `rewrite_model` instructions that stand alone, which then take the place of earlier turns (CAR).
    """

    def __init__(
        self,
        model: LanguageModel,
        spec: MindActSpec = MindActSpec(),
        *,
        rationale_model: Annotated[
            LanguageModel | None, Meta(description="writes why an earlier answer was right (memory refinement)")
        ] = None,
        rewrite_model: Annotated[
            LanguageModel | None, Meta(description="makes an instruction stand alone; earlier turns are then not shown (CAR)")
        ] = None,
    ) -> None:
        self.model, self.spec = model, spec
        self.rationale_model, self.rewrite_model = rationale_model, rewrite_model

    def fingerprint(self, platform: Platform) -> str:
        """Differs when the prompts do."""
        raise NotImplementedError

    def reset(self, task: Task) -> None:
        """Begin a new episode."""
        raise NotImplementedError

    async def act(self, observation: Observation) -> Step:
        """The next step. Raises NoEvidence for what is no state of a recorded page, InputError for a broken one."""
        raise NotImplementedError

    def demonstrate(self, trajectory: Trajectory, index: int, *, draw: int | None = None) -> tuple[Sequence[Message], str]:
        """What this policy is asked at that recorded step about one group of candidates, and the right answer.

        The group has the right element and others, or, at a share of the draws and where the page lost it, only others.
        """
        raise NotImplementedError


class SelfMAP(MindAct):
    """MindAct with the memory of Self-MAP: the same options, and other defaults."""

    def __init__(
        self,
        model: LanguageModel,
        spec: SelfMAPSpec = SelfMAPSpec(),
        *,
        rationale_model: Annotated[
            LanguageModel | None, Meta(description="writes why an earlier answer was right (memory refinement)")
        ] = None,
        rewrite_model: Annotated[
            LanguageModel | None, Meta(description="makes an instruction stand alone; earlier turns are then not shown (CAR)")
        ] = None,
    ) -> None:
        super().__init__(model, spec, rationale_model=rationale_model, rewrite_model=rewrite_model)
