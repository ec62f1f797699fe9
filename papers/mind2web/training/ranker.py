"""A ranker of candidates by transformers' Trainer: a cross-encoder that learns which of a page's
elements is meant.

For each step one right candidate and a few wrong ones, redrawn at each pass; the loss is the binary
cross-entropy of each (MindAct, arXiv 2306.06070, and Self-MAP, ACL 2024).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import Any

from prill.errors import InputError, UsageError
from prill.papers.mind2web.cross_encoder import MAX_TOKENS, pairs, scores
from prill.papers.mind2web.pages.ranking import RankingTally, candidate_texts, distinct, ranked
from prill.papers.mind2web.pages.state import read_state
from prill.papers.mind2web.pages.tree import RecordedPage, ranker_query
from prill.papers.mind2web.training.pages import Draw, Draws, GoldStep, GoldTurns, PagePlan, evenly
from prill.refine.training.preflight import Say, estimate_run
from prill.refine.training.samples import split
from prill.refine.training.spec import TrainSpec
from prill.refine.training.trainer import TrainingWatch, saving_whole, training_arguments, watched
from prill.refine.training.weights import load_model, model_failures, open_page_base

_AT_ONCE = 64  # candidates that are read at once when the model is tried
_MEASURED = 200  # steps whose tokens are counted beforehand


def plan_ranker(
    spec: TrainSpec,
    gold: str | os.PathLike[str],
    output: str | os.PathLike[str],
    say: Say = lambda *_: None,
) -> PagePlan:
    """Reads and measures everything. Raises UsageError for turns or settings with which the
    training would fail.
    """
    base = open_page_base(spec)
    turns = GoldTurns(gold, lambda done: say("turns", done, done))
    fitting = []
    for done, step in enumerate(turns.steps, 1):
        if _is_usable(turns, step):
            fitting.append(step)
        say("pages", done, len(turns.steps))
    if not fitting:
        raise UsageError(
            f"{gold}: no page has the candidates that stand beside it, both a right and a wrong one"
        )
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
        Path(output),
        lengths,
        rows=len(turns.steps) + turns.without,
        learnt=len(learnt) * draws.each,
        held_out=len(held_out) * draws.each,
        overlong=0,
        limit=limit,
    )
    return PagePlan(base, turns, tuple(learnt), tuple(held_out), facts, {})


def make_ranker_trainer(
    spec: TrainSpec, plan: PagePlan, output: Path, watch: TrainingWatch, *, on_gpu: bool
) -> Any:
    """A Trainer over the plan's steps, with the model loaded; rows are made as they are due."""
    transformers = import_module("transformers")
    transformers.set_seed(spec.seed)  # the head's first numbers are drawn from it
    settings = training_arguments(
        spec, plan.facts, output, evaluates=bool(plan.held_out), on_gpu=on_gpu
    )
    trainer = saving_whole(transformers.Trainer, spec.keep_checkpoints)(
        model=load_model(plan.base, spec, on_gpu=on_gpu),
        args=transformers.TrainingArguments(
            **settings,
            train_sampling_strategy="sequential",
            dataloader_num_workers=spec.workers,
            label_names=["labels"],
        ),
        data_collator=_collator(plan),
        compute_loss_func=_loss,
        train_dataset=RankerRows(plan.gold, plan_draws(spec, plan)),
        eval_dataset=RankerRows(plan.gold, Draws(plan.held_out, spec.negatives + 1, 1, spec.seed))
        if plan.held_out
        else None,
        processing_class=plan.base.reader,
    )
    watched(trainer, output, watch, None)
    return trainer


def plan_draws(spec: TrainSpec, plan: PagePlan) -> Draws:
    """The rows of the whole training, of all its passes."""
    each = spec.draws if spec.trains == "planner" else spec.negatives + 1
    passes = ceil(plan.facts.steps * spec.batch / (len(plan.learnt) * each))
    return Draws(plan.learnt, each, passes, spec.seed)


class RankerRows:
    """The rows as Trainer asks for them: a candidate's text, the query, and whether it is the right
    one.
    """

    def __init__(self, gold: GoldTurns, draws: Draws) -> None:
        self.gold, self.draws = gold, draws

    def __len__(self) -> int:
        return len(self.draws)

    def __getitem__(self, number: int) -> dict[str, Any]:
        draw = self.draws[number]
        text, query = _texts(self.gold, draw.step, _drawn(self.gold, self.draws, draw))
        return {"text": text, "query": query, "label": float(draw.row == 0)}


def ranking_figures(
    model: Any, plan: PagePlan, say: Callable[[int], object] = lambda done: None
) -> dict[str, Any]:
    """How well the model ranks all candidates of the steps that were kept apart."""
    tokenizer, tally = plan.base.tokenizer, RankingTally()
    model.eval()
    for done, step in enumerate(plan.held_out, 1):
        texts, query = candidate_texts(turn := plan.gold.turn(step.turn), step.index)
        different = distinct(texts)
        found = dict(
            zip(different, scores(model, tokenizer, query, different, _AT_ONCE), strict=True)
        )
        tally.add(ranked(turn, step.index, texts, found))
        say(done)
    return asdict(tally.figures())


def _loss(outputs: Any, labels: Any, num_items_in_batch: Any) -> Any:
    """The mean over the rows of a batch, however it is divided: the model's own would be added up
    over the parts.
    """
    entropy = import_module("torch").nn.functional.binary_cross_entropy_with_logits
    return entropy(outputs.logits.float(), labels, reduction="sum") / num_items_in_batch


def _collator(plan: PagePlan) -> Callable[[Sequence[dict[str, Any]]], dict[str, Any]]:
    torch, limit = import_module("torch"), plan.facts.limit or MAX_TOKENS

    def collate(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        both = pairs(
            plan.base.tokenizer,
            [row["text"] for row in rows],
            [row["query"] for row in rows],
            limit,
        )
        return {**both, "labels": torch.tensor([[row["label"]] for row in rows])}

    return collate


def _candidates(gold: GoldTurns, step: GoldStep) -> tuple[list[str], list[str]]:
    """Right and wrong ones, in the order of the state."""
    recorded = gold.turn(step.turn).steps[step.index]
    right = {*(recorded.action.target or "").split()}
    candidates = read_state(recorded.observation.text or "").candidates
    return [id for id in candidates if id in right], [id for id in candidates if id not in right]


@lru_cache(8)
def _page(html: str) -> RecordedPage:
    return RecordedPage(html)


def _is_usable(gold: GoldTurns, step: GoldStep) -> bool:
    """Whether the page has a right and a wrong candidate. Raises UsageError for a page that cannot
    be read.
    """
    right, wrong = _candidates(gold, step)
    try:
        page = RecordedPage(
            read_state(gold.turn(step.turn).steps[step.index].observation.text or "").page
        )
    except InputError as error:
        raise UsageError(f"{gold.place(step)}: {error}") from None
    return any(id in page for id in right) and any(id in page for id in wrong)


def _drawn(gold: GoldTurns, draws: Draws, draw: Draw) -> str:
    right, wrong = _candidates(gold, draw.step)
    page = _page(
        read_state(gold.turn(draw.step.turn).steps[draw.step.index].observation.text or "").page
    )
    numbers, some = draws.numbers(draw), right if draw.row == 0 else wrong
    return numbers.choice([id for id in some if id in page])


def _texts(gold: GoldTurns, step: GoldStep, candidate: str) -> tuple[str, str]:
    turn = gold.turn(step.turn)
    state = read_state(turn.steps[step.index].observation.text or "")
    return _page(state.page).candidate_text(candidate), ranker_query(turn.task.goal, state.past)
