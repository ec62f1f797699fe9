"""The judge of a run: what a configuration describes, with the run's model and captioner for what leaves them open."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prill.captioner.registry import CaptionerConfig, captioner_for
from prill.config.registry import OptionError
from prill.config.values import name_of
from prill.errors import UsageError
from prill.evaluators.registry import DESCRIPTIONS, JudgeConfig, JudgeLike, judge_options, make_judge, takes_a_model
from prill.models.registry import ModelConfig, ModelLike, model_options
from prill.protocols import Evaluator

log = logging.getLogger("prill.runs")


def make_run_judge(
    judge: JudgeLike,
    *,
    model: ModelLike | None = None,
    policy_model: ModelLike | None = None,
    concurrency: int = 16,
    trajectories: Sequence[str | Path] = (),
    captioner: str | None = None,
    path: str = "judge",
) -> Evaluator:
    """The judge of a run.

    Args:
        judge: What describes it.
        model: The model of the run: for a judge that names none, and for the parts of a described judge that name none.
        policy_model: The same where the policy of the run asks it; a judge that asks no model has no use for it.
        concurrency: Most calls at once, for models that do not say otherwise.
        trajectories: Files by which a captioner is chosen where one is needed and none is named.
        captioner: The captioner in that case, where there are no files yet.
        path: Where the judge stands in the run's configuration, for messages.

    Raises:
        OptionError: An option of the judge is wrong; the message names its path.
        UsageError: The options do not describe a judge.
    """
    if not isinstance(judge, str | Mapping | JudgeConfig):
        return make_judge(judge)
    described = JudgeConfig.read(judge, path)
    name, options = described.name, dict(described.mapping())
    del options["name"]
    if policy_model is not None and (name.endswith(DESCRIPTIONS) or takes_a_model(name)):
        model = policy_model
    shared = None if model is None else ModelConfig.read(model, "model")
    if shared is not None and not isinstance(shared, ModelConfig):  # a made model
        options.setdefault("model", shared)
        shared = None
    if "captioner" in options:
        options["captioner"] = _captioner(options["captioner"], {} if shared is None else shared.options, concurrency)
    if shared is not None and not name.endswith(DESCRIPTIONS) and "model" in judge_options(name) and not takes_a_model(name):
        options.setdefault("model", shared.name)  # a fitted judge's model is a file
    elif shared is not None and not name.endswith(DESCRIPTIONS) and not takes_a_model(name):
        raise UsageError(f"model: judge {name!r} asks no model", parameters=("model",))

    def choose_captioner() -> str:
        if captioner is not None:
            return captioner
        if not trajectories:
            raise UsageError("captioner is missing: no trajectory is here yet to choose it by; name text, ocr or given")
        chosen = captioner_for(trajectories)
        log.info("captioner: %s, by what the first trajectory has", chosen)
        return chosen

    try:
        return make_judge(
            name,
            defaults={"concurrency": concurrency},
            choose_captioner=choose_captioner,
            shared_model=shared,
            **options,
        )
    except OptionError as error:
        if name.endswith(DESCRIPTIONS):  # it names that file
            raise
        raise OptionError(f"{path}.{error}", error.option) from None


def _captioner(captioner: Any, shared: Mapping[str, Any], concurrency: int) -> Any:
    """The captioner's table; its model is at the place of the run's unless it says otherwise."""
    if not isinstance(captioner, str | Mapping | CaptionerConfig):
        return captioner
    table = CaptionerConfig.read(captioner, "judge.captioner").mapping()
    if table["name"] == "vlm" and "model" not in table:
        raise UsageError("judge.captioner.model is missing: name the model that looks at the screenshots")
    if "model" in table:
        names = model_options(name_of(table["model"]))
        usual = {"concurrency": concurrency, **shared}
        return {**{key: value for key, value in usual.items() if key in names}, **table}
    return table if len(table) > 1 else table["name"]
