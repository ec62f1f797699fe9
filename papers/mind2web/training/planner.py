"""Trains a planner with transformers' Seq2SeqTrainer: a model such as Flan-T5 that learns to answer
a policy's questions about a page.

Each epoch has each step several times, each time with other candidates. The policy draws them, and
the rows are made on demand (MindAct, arXiv 2306.06070, and Self-MAP, ACL 2024).
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from prill.errors import InputError, UnscoredError, UsageError
from prill.models.local.weights import one_text
from prill.models.request import worded
from prill.papers.mind2web.training.pages import (
    Draw,
    Draws,
    GoldStep,
    GoldTurns,
    PagePlan,
    PageRecipe,
)
from prill.protocols import Image
from prill.refine.demonstration import Teacher
from prill.refine.training.preflight import Devices, Say, estimate_run
from prill.refine.training.samples import split
from prill.refine.training.spec import TrainSpec
from prill.refine.training.weights import model_failures, open_page_base

# marks quotations: a fine-tuned model has a fixed form, and equal rows stay equal
_CODE = "0" * 8


class PlannerRecipe(PageRecipe):
    """Trains a planner that answers a policy, on recorded pages. The loss covers only the answer's
    tokens.
    """

    heading: ClassVar[str] = "A planner: what to do next on a recorded page"
    kind: ClassVar[str] = "Seq2Seq"

    def plan(
        self,
        spec: TrainSpec,
        rows: str | os.PathLike[str],
        folder: Path,
        say: Say,
        *,
        teacher: Teacher | None,
        taught: Mapping[str, Any] | None,
        devices: Devices | None,
    ) -> PagePlan:
        """Reads all turns, has the policy format each step once, and measures its length.

        Steps that the policy cannot format, or whose row is longer than `max_length`, are skipped
        and counted. Raises UsageError for turns or settings with which training would fail.
        """
        if teacher is None:
            raise UsageError(
                "policy is missing; name the policy that the planner answers",
                parameters=("policy",),
            )
        base = open_page_base(spec)
        turns = GoldTurns(rows, lambda done: say("turns", done, done))
        lengths: dict[GoldStep, tuple[int, int]] = {}
        reason = ""
        limit = min(filter(None, (spec.max_length, base.window)), default=None)
        for done, step in enumerate(turns.steps, 1):
            try:
                with model_failures(base.name):
                    row = encoded(base.tokenizer, *lesson(turns, step, teacher, 0))
                lengths[step] = len(row["input_ids"]), len(row["labels"])
            except (UnscoredError, InputError) as error:
                reason = reason or f"{turns.place(step)}: {error}"
            say("steps", done, len(turns.steps))
        if not lengths:
            raise UsageError(f"the policy cannot format any step; {reason}", parameters=("policy",))
        fitting = [step for step, (asked, _) in lengths.items() if limit is None or asked <= limit]
        if not fitting or (spec.overlong == "error" and len(fitting) < len(lengths)):
            longest = max(lengths, key=lambda step: lengths[step])
            raise UsageError(
                f"{turns.place(longest)}: {len(lengths) - len(fitting)} of {len(lengths)} "
                f"steps are longer than {limit} tokens, this one has {lengths[longest][0]}; "
                "raise max_length, or let the policy show less",
                parameters=("max_length", "overlong"),
            )
        learnt, held_out = split(fitting, spec.held_out)
        facts = estimate_run(
            spec,
            base,
            folder,
            [lengths[step] for step in learnt],
            rows=len(turns.steps) + turns.without,
            learnt=len(learnt) * spec.draws,
            held_out=len(held_out),
            overlong=len(turns.steps) - len(fitting),
            limit=limit,
        )
        return PagePlan(
            base,
            turns,
            tuple(learnt),
            tuple(held_out),
            facts,
            {"policy": taught or type(teacher).__name__},
        )

    def each(self, spec: TrainSpec) -> tuple[int, int]:
        """Returns the configured number of candidate draws."""
        return spec.draws, 1

    def rows(self, plan: PagePlan, draws: Draws, teacher: Teacher | None) -> PlannerRows:
        """Returns the policy's questions as rows."""
        assert teacher is not None, "a plan of a planner has one"
        return PlannerRows(plan.gold, draws, teacher, plan.base.tokenizer, plan.facts.limit)

    def collator(self, plan: PagePlan, model: Any) -> Any:
        """Returns a collator that pads questions and answers."""
        return import_module("transformers").DataCollatorForSeq2Seq(
            plan.base.tokenizer, model=model, label_pad_token_id=-100
        )

    def loss(self, outputs: Any, labels: Any, num_items_in_batch: Any) -> Any:
        """Returns the mean loss over the tokens of a batch's answers."""
        entropy = import_module("torch").nn.functional.cross_entropy
        logits = outputs.logits.flatten(0, 1).float()
        total = entropy(logits, labels.flatten(), ignore_index=-100, reduction="sum")
        return total / num_items_in_batch

    def samples(
        self, spec: TrainSpec, plan: PagePlan, teacher: Teacher | None
    ) -> Callable[[Any, int], list[bytes]] | None:
        """Returns a function that samples the model's answers at a few steps."""
        shown = (plan.held_out or plan.learnt)[: spec.samples]
        if teacher is None or not shown:
            return None

        def said(model: Any, number: int) -> list[bytes]:
            return [
                _sample(
                    model, plan.base.tokenizer, plan.gold, step, teacher, number, spec.sample_tokens
                )
                for step in shown
            ]

        return said


class PlannerRows:
    """A data set for Trainer: the tokens of a question and of its answer.

    A row that exceeds `limit` with its drawn candidates loses its first tokens, which belong to the
    earliest turns.
    """

    def __init__(
        self, gold: GoldTurns, draws: Draws, teacher: Teacher, tokenizer: Any, limit: int | None
    ) -> None:
        self.gold, self.draws, self.teacher, self.tokenizer, self.limit = (
            gold,
            draws,
            teacher,
            tokenizer,
            limit,
        )

    def __len__(self) -> int:
        return len(self.draws)

    def __getitem__(self, number: int) -> dict[str, list[int]]:
        draw = self.draws[number]
        try:
            question, answer = lesson(
                self.gold, draw.step, self.teacher, get_number(draw, self.draws.each)
            )
        except (UnscoredError, InputError) as error:
            raise UsageError(
                f"{self.gold.place(draw.step)}: the policy cannot format it: {error}"
            ) from None
        row = encoded(self.tokenizer, question, answer)
        if self.limit is not None and len(row["input_ids"]) > self.limit:
            row = {
                name: value if name == "labels" else value[-self.limit :]
                for name, value in row.items()
            }
        return row


def get_number(draw: Draw, each: int) -> int:
    """Returns the number of this draw of its step, over all epochs."""
    return draw.seen * each + draw.row


def lesson(gold: GoldTurns, step: GoldStep, teacher: Teacher, draw: int) -> tuple[str, str]:
    """Returns question and answer at a step. A teacher that draws candidates uses draw number
    `draw`.

    Raises the errors of `demonstrate`, and UsageError for a question with images.
    """
    turn = gold.whole_turn(step.turn)
    if _draws(teacher):
        messages, answer = teacher.demonstrate(turn, step.index, draw=draw)  # type: ignore[call-arg]
    else:
        messages, answer = teacher.demonstrate(turn, step.index)
    texts = []
    for message in worded(messages, "", _CODE):
        if any(isinstance(part, Image) for part in message.parts):
            raise UsageError(
                "the policy sends images, but a planner reads only text", parameters=("policy",)
            )
        texts.append("".join(part for part in message.parts if isinstance(part, str)))
    return one_text(texts), answer


def encoded(tokenizer: Any, question: str, answer: str) -> dict[str, list[int]]:
    """Tokenizes a row. The answer includes the end-of-sequence token."""
    asked = tokenizer(question)
    return {
        "input_ids": asked["input_ids"],
        "attention_mask": asked["attention_mask"],
        "labels": tokenizer(text_target=answer)["input_ids"],
    }


def _draws(teacher: Teacher) -> bool:
    return "draw" in inspect.signature(teacher.demonstrate).parameters


def _sample(
    model: Any,
    tokenizer: Any,
    gold: GoldTurns,
    step: GoldStep,
    teacher: Teacher,
    number: int,
    most: int,
) -> bytes:
    """Returns one line for people: the model's greedy answer next to the recorded one."""
    torch, was_training = import_module("torch"), model.training
    question, answer = lesson(gold, step, teacher, 0)
    inputs = tokenizer(question, return_tensors="pt").to(model.device)
    model.eval()
    try:
        with torch.inference_mode():
            out = model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                max_new_tokens=most,
                do_sample=False,
            )
    finally:
        model.train(was_training)
    said = tokenizer.decode(out[0], skip_special_tokens=True)
    turn = gold.turn(step.turn)
    facts = {
        "step": number,
        "row": f"{turn.id}, step {step.index}",
        "line": gold.line(step),
        "images": [],
    }
    return (
        json.dumps({**facts, "expected": answer, "said": said}, ensure_ascii=False).encode() + b"\n"
    )
