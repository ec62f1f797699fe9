"""The registry of judges. Keywords, TOML tables and command-line flags create the same judge.

A description has the judge's name under `name`, next to the options of the judge, of the model it
calls (`base_url`, `budget_usd`, …) and of the wrappers for any judge (`JudgeWrappers`).

    name = "cascade"
    band = [0.2, 1.0]

    [[judges]]
    name = "student"
    model = "student.json"

    [[judges]]
    name = "modular"
    model = "gpt-4o-mini"
    captioner = "text"
"""

from __future__ import annotations

import inspect
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from msgspec import Meta

from prill.captioner.registry import CaptionerConfig, captioner_for, make_captioner
from prill.config.registry import (
    Option,
    OptionError,
    Registry,
    RegistryEntry,
    check_options,
    list_options,
    nearest,
    read_options,
)
from prill.config.shared import LABELS, CalibrationOption, EvidenceOnlyOption
from prill.config.toml import read_table
from prill.config.values import PartConfig, get_name
from prill.errors import UsageError
from prill.evaluators.baselines import Constant, LabelOracle, NoiseSpec, NoisyLabels, oracle
from prill.evaluators.combine import Cascade, CascadeOn, Ensemble, Rule, Vote, sampled_judges
from prill.evaluators.fitted.calibration import comparable
from prill.evaluators.fitted.stack import RecordedVerdicts, Stacked, read_stack
from prill.evaluators.fitted.student import Student
from prill.evaluators.judge import PageJudge, load_page, maker_named, page_maker
from prill.evaluators.labels import latest_verdicts
from prill.evaluators.page import is_page
from prill.evaluators.questions import YES_NO, Question, read_questions
from prill.io.checks import expect_judge
from prill.io.store import read_labels, read_verdicts
from prill.io.truth import SourceOption, TruthOption
from prill.models.devices import used_together
from prill.models.ledger import Budget, spending_from
from prill.models.registry import (
    ModelConfig,
    ModelLike,
    asks_a_model,
    model_options,
    part_model,
)
from prill.protocols import Captioner, Evaluator, LanguageModel

_log = logging.getLogger("prill.runs")
_PAGE = "prill.evaluators.judge:PageJudge"  # of its page: evaluators/judges/NAME.toml


class JudgeRegistry(Registry):
    """The registry of judges, in which a page is a name, too."""

    def _object(self, name: str) -> Any:
        entry = self.entries.get(name)
        if entry is not None and entry.maker == _PAGE:
            return maker_named(name)
        if is_page(name):
            return page_maker(load_page(name))
        return super()._object(name)


_PAGES = {
    "vlm": "a vision-language model that sees screenshots",
    "modular": "a captioner, then a language model that reads the captions",
    "steps": "a label and a reward for every action",
    "webjudge": "key points, a grade for every frame, then the verdict",
    "rubric": "criteria of the goal, each with the state that shows it",
    "checklist": "the progress of every state on a checklist of the goal, and a reward for every "
    "action",
    "ask": "a question of your own, with a typed answer",
    "likelihood": "how likely the goal is, given what the agent did (prill train judge)",
    "aer-v": "the paper's judge of the last screenshot",
    "aer-c": "the paper's judge of a caption of the last screenshot",
    "aer-steps": "the paper's judge of single steps",
    "webjudge-general": "WebJudge for any site, with the agent's thoughts",
    "webvoyager": "WebVoyager's evaluator",
    "agenttrek": "AgentTrek's evaluator",
    "arb-axtree": "AgentRewardBench's judge of accessibility trees",
    "arb-screen": "AgentRewardBench's judge of screenshots",
    "nnetnav": "NNetNav's reward model",
    "browser-use": "browser-use's judge",
    "uv": "the Universal Verifier",
}
_OTHERS = {
    "vote": ("samples of one judge, or several judges", "registry:vote"),
    "cascade": ("a cheap judge, and a second one where it is unsure", "registry:cascade"),
    "ensemble": ("the weighted mean of several judges", "registry:ensemble"),
    "student": ("a judge fitted to labels (prill fit)", "registry:student"),
    "prior": ("the same, without reading texts", "registry:prior"),
    "stacked": ("a fitted judge and others, weighted by labels (prill fit)", "registry:stacked"),
    "oracle": ("the labels themselves", "registry:label_oracle"),
    "noisy": ("the labels, with artificial errors", "registry:noisy"),
    "self-report": ("a success if the agent claims it", "baselines:SelfReport"),
    "always-fail": ("failure, always", "registry:always_fail"),
    "always-success": ("success, always", "registry:always_success"),
}
JUDGES = JudgeRegistry(
    "judge",
    {name: RegistryEntry(words, _PAGE) for name, words in _PAGES.items()}
    | {
        name: RegistryEntry(words, f"prill.evaluators.{make}")
        for name, (words, make) in _OTHERS.items()
    },
    "prill.evaluators",
)


@dataclass(frozen=True, kw_only=True)
class JudgeWrappers:
    """Wrappers that apply to any judge, from the innermost to the outermost."""

    evidence_only: EvidenceOnlyOption = False
    guard: Annotated[
        str | None,
        Meta(
            description="File of `prill train judge`. Runs unlike its training runs are left "
            "unscored."
        ),
    ] = None
    calibration: CalibrationOption = None

    def apply(self, judge: Evaluator) -> Evaluator:
        """Returns the judge with the configured wrappers. Raises UsageError."""
        if self.evidence_only:
            from prill.evaluators.wrappers.rewritten import EvidenceOnly

            judge = EvidenceOnly(judge)
        if self.guard:
            from prill.evaluators.wrappers.guarded import Guarded, read_guard

            judge = Guarded(judge, read_guard(self.guard))
        if self.calibration:
            from prill.evaluators.fitted.calibration import Calibrated, read_calibration

            judge = Calibrated(judge, read_calibration(self.calibration))
        return judge


WRAPPER_OPTIONS = tuple(part.name for part in fields(JudgeWrappers))


class JudgeConfig(PartConfig):
    """Configuration of a judge: its name, its options, and those of its model and wrappers.

    Example: `JudgeConfig("vlm", model="gpt-4o")`.

    The name may be a .toml or .json file that describes a judge.
    """

    __slots__ = ()
    kind = "judge"
    kinds = "judges"
    registry = JUDGES

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of the judge that a table names, and those of the wrappers."""
        name, around = str(table.get("name")), list_options(JudgeWrappers)
        # also the options that every judge in the file accepts and does not set
        if is_description(name):
            return {"captioner": judge_options("modular")["captioner"], **around}
        return {**around, **judge_options(name)}

    @classmethod
    def names_with(cls, option: str) -> list[str]:
        """Returns the judges that have an option."""
        return [name for name in JUDGES.entries if option in judge_options(name)]


# The registered names, for type checkers and editors.
JudgeName = Literal[
    "vlm", "modular", "steps", "webjudge", "rubric", "checklist", "ask", "likelihood", "aer-v",
    "aer-c", "aer-steps", "webjudge-general", "webvoyager", "agenttrek", "arb-axtree",
    "arb-screen", "nnetnav", "browser-use", "uv", "vote", "cascade", "ensemble", "student", "prior",
    "stacked", "oracle", "noisy", "self-report", "always-fail", "always-success",
]  # fmt: skip
JudgeLike = JudgeConfig | str | Mapping[str, Any] | Evaluator
JudgeOption = Annotated[
    JudgeLike, Meta(description="Judge to use: a name, FILE.toml, FILE.json or module:Object.")
]
# A name with one of these extensions is a file that describes a judge, or a page of one.
DESCRIPTIONS = (".toml", ".json")


def is_description(name: str) -> bool:
    """Returns whether a name is a file with the table of a judge; a page is a judge itself."""
    return name.endswith(DESCRIPTIONS) and not is_page(name)


def make_judge(
    judge: JudgeLike | os.PathLike[str],
    *,
    defaults: Mapping[str, Any] | None = None,
    lax: bool = False,
    choose_captioner: Callable[[], str] | None = None,
    shared_model: ModelConfig | None = None,
    **options: Any,
) -> Evaluator:
    """Makes a judge from a name, a description or a file.

    Args:
        judge: A name, a user-defined `module:Object` or `file.py:Object`, a table, a configuration,
            a .toml or .json file with a table, or a judge, which is returned with the wrappers that
            `options` describe.
        defaults: Options for every judge in the description that has them and does not set them:
            one model and one captioner for all parts of a cascade, for example.
        lax: Parse numbers and booleans from text, for the command line.
        choose_captioner: Returns a captioner's name for a judge that sets none and needs one, or
            whose model takes no images. None: the judge's own default.
        shared_model: The model of judges without a model. Its options also apply to named models
            that do not set them. None: no shared model.
        **options: Options of the judge, of its model and of its wrappers. They take precedence over
            the description.

    Returns:
        The judge: `verdict = await judge(trajectory)`.

    Raises:
        OptionError: An option is unknown, missing or of the wrong type.
        UsageError: No judge has that name, the file cannot be read, or the description contains
            itself.
    """
    context = _Context(defaults or {}, lax, choose_captioner, shared_model)
    place = ""
    if isinstance(judge, JudgeConfig):
        options = {**judge.options, **options}
        judge = judge.name
    if isinstance(judge, str | os.PathLike) and is_description(str(judge)):
        judge, place = read_table(judge), f"{judge}: "
    if isinstance(judge, str | os.PathLike):
        judge = {"name": str(judge)}
    if isinstance(judge, Mapping):
        try:
            with used_together():
                return _build({**judge, **options}, context, place)
        except RecursionError:
            raise UsageError(
                f"{place}recursive judge definition: a judge contains itself, or judges are "
                "nested too deeply"
            ) from None
    expect_judge(judge)
    return JudgeWrappers(**read_options(JudgeWrappers, options, "a judge object", lax=lax)).apply(
        judge
    )


def judge(
    name: JudgeName | JudgeLike | os.PathLike[str],
    *,
    model: str | os.PathLike[str] | ModelLike | None = None,
    captioner: str | CaptionerConfig | Captioner | None = None,
    concurrency: int | None = None,
    budget_usd: float | None = None,
    cache: str | os.PathLike[str] | None = None,
    evidence_only: bool | None = None,
    calibration: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Evaluator:
    """Makes a judge, which makes a verdict of a trajectory.

    For example `prill.judge("vlm", model="gpt-4o")`, then `await judge(trajectory)`. None leaves an
    option at its default. `prill judges NAME` lists the options of a judge.

    Args:
        name: A name, `module:Object` or `file.py:Object`, a .toml or .json file, a table, or a
            judge, which is returned with the options for any judge.
        model: The model that it calls, or the file of a fitted judge.
        captioner: The captioner that describes states, for a judge that takes one.
        concurrency: The maximum number of concurrent calls of its model.
        budget_usd: The budget of its model, in US dollars.
        cache: The folder for replies, which are then paid once.
        evidence_only: Whether to hide the agent's thoughts, answer and messages.
        calibration: The file of `prill calibrate` that sets probabilities and the threshold.
        **options: Further options of the judge, of its model, and for any judge.

    Raises:
        OptionError: An option is unknown, missing or of the wrong type.
        UsageError: No judge has that name, or the file cannot be read.
    """
    named: dict[str, Any] = {
        "model": model,
        "captioner": captioner,
        "concurrency": concurrency,
        "budget_usd": budget_usd,
        "cache": cache,
        "evidence_only": evidence_only,
        "calibration": calibration,
    }
    return make_judge(name, **options, **{k: v for k, v in named.items() if v is not None})


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
    """Makes the judge of a run.

    `model` is the run's, for a judge, or parts of a described judge, without one; `policy_model` is
    the run's if the policy calls it too, and ignored for a judge that calls no model. If a
    captioner is needed and none is named, the files `trajectories` choose it, or without files
    `captioner` is taken. `path` is that of the judge in the run's configuration.

    Raises OptionError for a wrong option, whose path the message names, and UsageError if the
    options do not describe a judge.
    """
    if not isinstance(judge, str | Mapping | JudgeConfig):
        return make_judge(judge)
    described = JudgeConfig.read(judge, path)
    name, options = described.name, dict(described.mapping())
    del options["name"]
    if policy_model is not None and (is_description(name) or takes_a_model(name)):
        model = policy_model
    shared = None if model is None else ModelConfig.read(model, "model")
    if shared is not None and not isinstance(shared, ModelConfig):  # a model instance
        options.setdefault("model", shared)
        shared = None
    if "captioner" in options:
        options["captioner"] = _run_captioner(
            options["captioner"], {} if shared is None else shared.options, concurrency
        )
    if (
        shared is not None
        and not is_description(name)
        and "model" in judge_options(name)
        and not takes_a_model(name)
    ):
        options.setdefault("model", shared.name)  # a fitted judge's model is a file
    elif shared is not None and not is_description(name) and not takes_a_model(name):
        raise UsageError(
            f"model: judge {name!r} does not call a model; leave it out", parameters=("model",)
        )

    def choose_captioner() -> str:
        if captioner is not None:
            return captioner
        if not trajectories:
            raise UsageError(
                "captioner is missing; without a trajectory it cannot be chosen "
                "automatically, so set text, ocr or given"
            )
        chosen = captioner_for(trajectories)
        _log.info("captioner: %s, chosen by the first trajectory", chosen)
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
        if is_description(name):  # it names that file
            raise
        raise OptionError(f"{path}.{error}", error.option) from None


def _run_captioner(captioner: Any, shared: Mapping[str, Any], concurrency: int) -> Any:
    """Returns the captioner's table; its model uses the endpoint of the run's model by default."""
    if not isinstance(captioner, str | Mapping | CaptionerConfig):
        return captioner
    table = CaptionerConfig.read(captioner, "judge.captioner").mapping()
    if table["name"] == "vlm" and "model" not in table:
        raise UsageError(
            "judge.captioner.model is missing; name the model that looks at the screenshots"
        )
    if "model" in table:
        names = model_options(get_name(table["model"]))
        usual = {"concurrency": concurrency, **shared}
        return {**{key: value for key, value in usual.items() if key in names}, **table}
    return table if len(table) > 1 else table["name"]


def judge_options(name: str) -> Mapping[str, Option]:
    """Lists the options of a judge.

    Args:
        name: A name, or a user-defined `module:Object` or `file.py:Object`.

    Returns:
        The options by name, without those of the judge's model and wrappers.

    Raises:
        UsageError: No judge has that name.
    """
    return list_options(JUDGES.maker(name))


def judge_questions(judge: JudgeLike) -> tuple[Question, ...]:
    """Returns the questions of a judge that asks some, a table, a configuration, or a .toml or
    .json file, without making the judge or its model.

    Raises UsageError if it is another judge, an option is invalid, or a question is there twice.
    """
    questions: tuple[Question, ...] = ()
    described: Any = judge
    place = ""
    if isinstance(judge, PageJudge):
        questions, described = judge.questions, judge.page.name
    else:
        described = JudgeConfig.read(judge)
        if isinstance(described, JudgeConfig) and is_description(described.name):
            place = f"{described.name}: "
            described = JudgeConfig.read({**read_table(described.name), **described.options})
        if isinstance(described, JudgeConfig):
            maker = JUDGES.maker(described.name)
            page = getattr(maker, "page", None)
            if page is not None and page.stages[-1].reads == "answers":
                names = list_options(maker)
                given = {k: v for k, v in described.options.items() if k in names}
                check_options(maker, given, f"judge {described.name!r}", place=place)
                usual = {"question": None, "answer": YES_NO, "questions": ()}
                asked = {**usual, **page.settings, **given}
                questions = read_questions(asked["question"], asked["answer"], asked["questions"])
    if not questions:
        raise UsageError(
            f"{place}judge {get_name(described)!r} asks no questions; expected the judge ask",
            parameters=("judge",),
        )
    texts = Counter(question.text for question in questions)
    if twice := [text for text, count in texts.items() if count > 1]:
        raise UsageError(f"the question {twice[0]!r} is asked twice", parameters=("judge",))
    return questions


def takes_a_model(name: str) -> bool:
    """Returns whether the named judge calls a model, itself or through its parts."""
    maker = JUDGES.maker(name)
    return asks_a_model(maker) or "judges" in list_options(maker)


@dataclass(frozen=True)
class _Context:
    """The context of a whole description, including its parts."""

    defaults: Mapping[str, Any]
    lax: bool
    choose_captioner: Callable[[], str] | None
    shared_model: ModelConfig | None = None


def _build(description: Mapping[str, Any], context: _Context, place: str) -> Evaluator:
    table = {str(key).replace("-", "_"): value for key, value in description.items()}
    older = table.pop("evaluator", None)  # the key in files of earlier versions
    name = table.pop("name", older)
    if not isinstance(name, str) or not name:
        page = " (the page of a judge has [[stages]])" if place else ""
        raise OptionError(f"{place}name is missing; name the judge{page}", "name")
    try:
        maker = JUDGES.maker(name)
    except UsageError as error:
        if not place:
            raise
        raise UsageError(f"{place}name: {error}") from None
    own = list_options(maker)
    if inspect.isroutine(maker) and (inspect.iscoroutinefunction(maker) or "trajectory" in own):
        expect_judge(maker)  # reject a function that judges instead of creating a judge
    asks_model = asks_a_model(maker)
    usd = None
    # the model and captioner of a combined judge are the defaults of its parts
    if "judges" in own:
        shared = {
            key: table.pop(key)
            for key in ("model", "captioner", *model_options(""))
            if key in table and key not in own
        }
        defaults = {**context.defaults, **shared}
        usd = defaults.pop("budget_usd", None)
        context = replace(context, defaults=defaults)
        if not own["judges"].required and "judges" not in table:
            table["judges"] = _recorded_judges(table)
    if asks_model and context.shared_model is not None:
        table |= _shared(context.shared_model, table, own)
    table |= _inherited(context.defaults, table, own, asks_model)
    if (
        get_name(table.get("model")) == "embedded"
        and asks_model
        and "captioner" not in own
        and name in JUDGES.entries
    ):
        raise OptionError(
            f"{place}model: the embedded model does not accept images; use a judge that "
            "reads text, for example modular",
            "model",
        )
    blind = "captioner" in own and (
        own["captioner"].required or get_name(table.get("model")) == "embedded"
    )
    if blind and "captioner" not in table and context.choose_captioner:
        table["captioner"] = context.choose_captioner()
    of_model = (
        [option for option in model_options(table.get("model")) if option not in own]
        if asks_model
        else []
    )
    _refuse_unknown(table, name, [*own, *of_model, *WRAPPER_OPTIONS], place)
    around = {key: table.pop(key) for key in WRAPPER_OPTIONS if key in table and key not in own}
    settings = {key: table.pop(key) for key in of_model if key in table}
    parts = {
        LanguageModel: lambda model, at: part_model(model, at, place, context.lax, settings),
        Captioner: lambda captioner, at: make_captioner(captioner, place=at, lax=context.lax),
        Evaluator: lambda part, at: _part(part, context, at),
    }
    what = f"judge {name!r}"
    with _budget(
        usd if usd is not None else settings.pop("budget_usd", None), what, place, lax=context.lax
    ):
        judge: Evaluator = maker(
            **read_options(maker, table, what, place=place, parts=parts, lax=context.lax)
        )
    try:
        expect_judge(judge)
    except UsageError as error:
        raise UsageError(f"{place}{name}: {error}") from None
    return JudgeWrappers(
        **read_options(JudgeWrappers, around, what, place=place, lax=context.lax)
    ).apply(judge)


def _part(part: object, context: _Context, place: str) -> Evaluator:
    if isinstance(part, Mapping):
        return _build(part, context, f"{place}.")
    if isinstance(part, str):
        return _build({"name": part}, context, f"{place}.")
    try:
        expect_judge(part)
    except UsageError as error:
        raise OptionError(
            f"{place}: expected a judge, its name or a table: {error}", "judges"
        ) from None
    return cast(Evaluator, part)


@dataclass(frozen=True, kw_only=True)
class _OfMoney:
    budget_usd: Annotated[float | None, Meta(ge=0)] = None


def _budget(usd: object, what: str, place: str, *, lax: bool) -> AbstractContextManager[object]:
    """Returns one budget for all models of a judge, including those of its captioner and parts."""
    if usd is None:
        return nullcontext()
    read = read_options(_OfMoney, {"budget_usd": usd}, what, place=place, lax=lax)
    return spending_from(Budget(read["budget_usd"]))


def _shared(
    shared: ModelConfig, table: Mapping[str, Any], own: Mapping[str, Option]
) -> dict[str, Any]:
    """Returns the shared model for a judge without one, or its options that a named one lacks."""
    named = table.get("model")
    if named is None:
        if shared.name:
            return {"model": shared.mapping()}
        return {
            key: value
            for key, value in shared.options.items()
            if key not in own and key not in table
        }
    if not isinstance(named, str | Mapping):
        return {}
    inner = dict(named) if isinstance(named, Mapping) else {"name": named}
    set_keys = {*inner, *(key for key in table if key not in own)}
    return {
        "model": {
            **{
                k: v
                for k, v in shared.options.items()
                if k in model_options(inner) and k not in set_keys
            },
            **inner,
        }
    }


def _inherited(
    defaults: Mapping[str, Any],
    table: Mapping[str, Any],
    own: Mapping[str, Option],
    asks_model: bool,
) -> dict[str, Any]:
    """Returns the defaults for the options that a judge and its model do not set."""
    fitting = {key: value for key, value in defaults.items() if key in own and key not in table}
    if "model" in fitting and not asks_model:
        del fitting["model"]  # a fitted judge's model is a file
    if asks_model:
        settings = model_options({**fitting, **table}.get("model"))
        fitting |= {
            key: value
            for key, value in defaults.items()
            if key in settings and key not in own and key not in table
        }
    return fitting


def _refuse_unknown(
    table: Mapping[str, Any], name: str, allowed: Sequence[str], place: str
) -> None:
    for key in table:
        if key not in allowed:
            model = table.get("model") if asks_a_model(JUDGES.maker(name)) else None
            if isinstance(model, str) and key in model_options("a name"):
                raise OptionError(
                    f"{place}{key}: model {model!r} is not at an endpoint, so it has no "
                    "such option",
                    key,
                )
            others = [other for other in JUDGES.entries if key in judge_options(other)]
            who = f"; judges with this option: {', '.join(others)}" if others else ""
            raise OptionError(
                f"{place}{key}: judge {name!r} has no such option{nearest(key, allowed)}{who}", key
            )


_Judges = Annotated[
    Sequence[Evaluator], Meta(description="Judges to combine, each given like a single judge.")
]


def vote(
    judges: _Judges,
    rule: Annotated[Rule, Meta(description="Rule that combines the verdicts.")] = "majority",
    samples: Annotated[
        int,
        Meta(
            ge=1, description="Number of samples from the same judge. The first uses temperature 0."
        ),
    ] = 1,
    temperature: Annotated[
        float, Meta(gt=0, description="Temperature of the further samples.")
    ] = 1.0,
) -> Vote:
    """A vote of several judges, or of samples of one."""
    if samples > 1:
        if len(judges) != 1:
            raise UsageError(f"samples needs a single judge, got {len(judges)}")
        judges = sampled_judges(judges[0], samples, temperature)
    return Vote(judges, rule)


def cascade(
    judges: _Judges,
    band: Annotated[
        tuple[float, float] | None,
        Meta(
            description="Range of the first judge's scores for which the second judge is "
            "called (default: stored with the first judge)."
        ),
    ] = None,
    first_may_accept: Annotated[
        bool, Meta(description="Let the first judge also accept alone, instead of only rejecting.")
    ] = False,
    on: Annotated[
        CascadeOn,
        Meta(
            description="When the second judge is called: unsure (also for each success), or "
            "unscored (only as a fallback)."
        ),
    ] = "unsure",
) -> Cascade:
    """Two judges: the second is called if the first is unsure or says success, or is unscored."""
    if len(judges) != 2:
        raise UsageError(f"a cascade needs two judges, got {len(judges)}")
    return Cascade(judges[0], judges[1], band=band, first_may_accept=first_may_accept, on=on)


def ensemble(
    judges: _Judges,
    weights: Annotated[
        list[float] | None, Meta(description="Weights, one per judge (default: all equal).")
    ] = None,
    threshold: Annotated[
        float, Meta(gt=0, le=1, description="Minimum mean score of a success.")
    ] = 0.5,
) -> Ensemble:
    """The weighted mean of several judges."""
    return Ensemble(judges, weights, threshold=threshold)


_FittedFile = Annotated[str, Meta(description="File written by `prill fit`.")]
_Threshold = Annotated[
    float | None,
    Meta(ge=0, le=1, description="Minimum probability of a success (default: stored in the file)."),
]


def student(model: _FittedFile, threshold: _Threshold = None) -> Student:
    """A fitted judge that reads texts."""
    return _fitted(model, threshold, "student")


def prior(model: _FittedFile, threshold: _Threshold = None) -> Student:
    """A fitted judge that uses only telemetry."""
    return _fitted(model, threshold, "prior")


def _fitted(path: str, threshold: float | None, kind: str) -> Student:
    judge = Student.load(path, threshold=threshold)
    if judge.info.name != kind:
        raise UsageError(
            f"{path} contains a {judge.info.name}, not a {kind}; use the judge {judge.info.name}",
            parameters=("judge",),
        )
    return judge


def stacked(
    model: _FittedFile,
    judges: Annotated[
        Sequence[Evaluator],
        Meta(description="The other judges (default: the ones described in their verdicts)."),
    ] = (),
    verdicts: Annotated[
        str | list[str] | None,
        Meta(description="Verdict files (a.jsonl,b.jsonl), used instead of calling their judges."),
    ] = None,
) -> Stacked:
    """A fitted judge combined with other judges."""
    stack, label = read_stack(model)
    return Stacked(stack, [*judges, *map(_recorded, _paths(verdicts))], label=label)


def _paths(verdicts: str | list[str] | None) -> list[str]:
    return verdicts.split(",") if isinstance(verdicts, str) else verdicts or []


def _recorded(path: str) -> RecordedVerdicts:
    try:
        return RecordedVerdicts(*latest_verdicts(read_verdicts(path)))
    except UsageError as error:
        raise UsageError(f"{path}: {error}", parameters=("verdicts",)) from None


def _recorded_judges(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the judges in a stacked judge's file, without those with given verdicts."""
    if not isinstance(path := table.get("model"), str):
        return []  # the errors are reported when options are read
    known = {comparable(_recorded(one).info) for one in _paths(table.get("verdicts"))}
    described = []
    for source in read_stack(path)[0].sources:
        info = source.judge
        if comparable(info) in known:
            continue
        if info.name not in JUDGES.entries:
            raise UsageError(
                f"{path}: the judge {source.name} cannot be created from its name; describe "
                "it in judges, or give its verdict file in verdicts",
                parameters=("judges",),
            )
        maker, params = JUDGES.maker(info.name), {}
        for key, option in list_options(maker).items():
            if key in info.params and info.params[key] != option.default:
                params[key] = info.params[key]
        model = {"model": info.model} if asks_a_model(maker) and info.model else {}
        described.append({"name": info.name, **model, **params})
    return described


def label_oracle(
    labels: Annotated[str, LABELS],
    source: SourceOption = None,
    truth: TruthOption = "majority",
) -> LabelOracle:
    """Returns the labels of a file as verdicts."""
    try:
        return oracle(list(read_labels(labels)), source, truth)
    except UsageError as error:
        raise UsageError(f"{labels}: {error}") from None


_NO_NOISE = NoiseSpec()


def noisy(
    labels: Annotated[str, LABELS],
    spec: NoiseSpec = _NO_NOISE,
    source: SourceOption = None,
    truth: TruthOption = "majority",
) -> NoisyLabels:
    """Returns the labels of a file as verdicts, with errors at given rates."""
    return NoisyLabels(label_oracle(labels, source, truth), spec)


def always_fail() -> Constant:
    """A judge that always says failure."""
    return Constant(False)


def always_success() -> Constant:
    """A judge that always says success."""
    return Constant(True)
