"""Trains a candidate ranker with transformers' Trainer: a cross-encoder that learns to find the
target element of a page.

Each step contributes one right candidate and a few wrong ones, redrawn in each epoch. The loss is
the binary cross-entropy of each (MindAct, arXiv 2306.06070, and Self-MAP, ACL 2024).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from prill.errors import InputError, UsageError
from prill.papers.mind2web.cross_encoder import MAX_TOKENS, pairs, scores
from prill.papers.mind2web.pages.ranking import RankingTally, candidate_texts, distinct, ranked
from prill.papers.mind2web.pages.state import read_state
from prill.papers.mind2web.pages.tree import ranker_query, read_page
from prill.papers.mind2web.training.pages import (
    Draw,
    Draws,
    GoldStep,
    GoldTurns,
    PagePlan,
    PageRecipe,
    evenly,
)
from prill.refine.demonstration import Teacher
from prill.refine.training.preflight import Devices, Say, estimate_run
from prill.refine.training.recipe import refuse_teacher
from prill.refine.training.samples import split
from prill.refine.training.spec import TrainSpec
from prill.refine.training.weights import model_failures, open_page_base

_AT_ONCE = 64  # candidates per batch in the evaluation
_MEASURED = 200  # steps whose tokens are counted in advance


class RankerRecipe(PageRecipe):
    """Trains a candidate ranker on recorded pages."""

    heading: ClassVar[str] = "A ranker: which element of a page is meant"
    arguments: ClassVar[Mapping[str, Any]] = {"label_names": ["labels"]}

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
        """Reads and measures the turns. Raises UsageError for turns or settings with which training
        would fail.
        """
        refuse_teacher(spec, teacher)
        base = open_page_base(spec)
        turns = GoldTurns(rows, lambda done: say("turns", done, done))
        fitting = []
        for done, step in enumerate(turns.steps, 1):
            if _is_usable(turns, step):
                fitting.append(step)
            say("pages", done, len(turns.steps))
        if not fitting:
            raise UsageError(f"{rows}: no page has both a correct and a wrong candidate")
        learnt, held_out = split(fitting, spec.held_out)
        limit = min(filter(None, (spec.max_length or MAX_TOKENS, base.window)))
        draws = Draws(learnt, spec.negatives + 1, 1, spec.seed)
        lengths = []
        for step in evenly(learnt, _MEASURED):
            text, query = _texts(turns, step, _drawn(turns, draws, Draw(step, 0, 0)))
            with model_failures(base.name):
                lengths.append((min(limit, len(base.tokenizer(text, query)["input_ids"])), 0))
        facts = estimate_run(
            spec,
            base,
            folder,
            lengths,
            rows=len(turns.steps) + turns.without,
            learnt=len(learnt) * draws.each,
            held_out=len(held_out) * draws.each,
            overlong=0,
            limit=limit,
        )
        return PagePlan(base, turns, tuple(learnt), tuple(held_out), facts, {})

    def each(self, spec: TrainSpec) -> tuple[int, int]:
        """Returns one row for the right candidate plus those for the wrong ones."""
        return spec.negatives + 1, spec.negatives + 1

    def rows(self, plan: PagePlan, draws: Draws, teacher: Teacher | None) -> RankerRows:
        """Returns right and wrong candidates as rows."""
        return RankerRows(plan.gold, draws)

    def collator(self, plan: PagePlan, model: Any) -> Any:
        """Returns a collator for pairs of candidate and query."""
        torch, limit = import_module("torch"), plan.facts.limit or MAX_TOKENS

        def collate(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
            texts, queries = ([row[name] for row in rows] for name in ("text", "query"))
            both = pairs(plan.base.tokenizer, texts, queries, limit)
            return {**both, "labels": torch.tensor([[row["label"]] for row in rows])}

        return collate

    def loss(self, outputs: Any, labels: Any, num_items_in_batch: Any) -> Any:
        """Returns the mean loss over the rows of a batch."""
        entropy = import_module("torch").nn.functional.binary_cross_entropy_with_logits
        return entropy(outputs.logits.float(), labels, reduction="sum") / num_items_in_batch

    def figures(self, trainer: Any, plan: PagePlan, say: Say) -> dict[str, Any]:
        """Returns the ranking metrics over all candidates of the evaluation steps."""
        if not plan.held_out or not trainer.is_world_process_zero():
            return {}
        tokenizer, tally = plan.base.tokenizer, RankingTally()
        model = trainer.accelerator.unwrap_model(trainer.model).eval()
        for done, step in enumerate(plan.held_out, 1):
            texts, query = candidate_texts(turn := plan.gold.turn(step.turn), step.index)
            different = distinct(texts)
            found = scores(model, tokenizer, query, different, _AT_ONCE)
            by_text = dict(zip(different, found, strict=True))
            tally.add(ranked(turn, step.index, texts, by_text))
            say("ranking what was kept apart", done, len(plan.held_out))
        return {"ranking": asdict(tally.figures())}

    def table(self, figures: Mapping[str, Any]) -> str:
        """Formats the ranking metrics of the evaluation steps."""
        found = figures.get("ranking")
        if not found:
            return ""
        rows = {
            "accuracy": found["accuracy"],
            "accuracy by lot": found["chance"],
            "MRR": found["mrr"],
        }
        rows |= {f"recall@{most}": share for most, share in found["recall"].items()}
        lines = "\n".join(f"| {name} | {share:.3f} |" for name, share in rows.items())
        return f"\n| on {found['steps']:,} steps kept apart | |\n|---|---|\n{lines}\n"


class RankerRows:
    """A data set for Trainer: a candidate's text, the query, and whether the candidate is right."""

    def __init__(self, gold: GoldTurns, draws: Draws) -> None:
        self.gold, self.draws = gold, draws

    def __len__(self) -> int:
        return len(self.draws)

    def __getitem__(self, number: int) -> dict[str, Any]:
        draw = self.draws[number]
        text, query = _texts(self.gold, draw.step, _drawn(self.gold, self.draws, draw))
        return {"text": text, "query": query, "label": float(draw.row == 0)}


def _candidates(gold: GoldTurns, step: GoldStep) -> tuple[list[str], list[str]]:
    """Returns the right and wrong candidates, in the order of the state."""
    recorded = gold.turn(step.turn).steps[step.index]
    right = {*(recorded.action.target or "").split()}
    candidates = read_state(recorded.observation.text or "").candidates
    return [id for id in candidates if id in right], [id for id in candidates if id not in right]


def _is_usable(gold: GoldTurns, step: GoldStep) -> bool:
    """Returns whether the page has a right and a wrong candidate. Raises UsageError for an
    unreadable page.
    """
    right, wrong = _candidates(gold, step)
    try:
        page = read_page(
            read_state(gold.turn(step.turn).steps[step.index].observation.text or "").page
        )
    except InputError as error:
        raise UsageError(f"{gold.place(step)}: {error}") from None
    return any(id in page for id in right) and any(id in page for id in wrong)


def _drawn(gold: GoldTurns, draws: Draws, draw: Draw) -> str:
    right, wrong = _candidates(gold, draw.step)
    page = read_page(
        read_state(gold.turn(draw.step.turn).steps[draw.step.index].observation.text or "").page
    )
    numbers, some = draws.numbers(draw), right if draw.row == 0 else wrong
    return numbers.choice([id for id in some if id in page])


def _texts(gold: GoldTurns, step: GoldStep, candidate: str) -> tuple[str, str]:
    turn = gold.turn(step.turn)
    state = read_state(turn.steps[step.index].observation.text or "")
    return read_page(state.page).candidate_text(candidate), ranker_query(turn.task.goal, state.past)
