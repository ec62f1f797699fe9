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
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from msgspec import Meta

from prill.captioner.registry import CaptionerConfig, captioner_for, make_captioner
from prill.checks import expect_judge
from prill.config.registry import (
    Option,
    OptionError,
    Registry,
    RegistryEntry,
    list_options,
    nearest,
    read_options,
)
from prill.config.toml import read_table
from prill.config.values import get_name
from prill.errors import UsageError
from prill.evaluators.baselines import Constant, LabelOracle, NoiseSpec, NoisyLabels, oracle
from prill.evaluators.combine import Cascade, Ensemble, Rule, Vote, sampled_judges
from prill.evaluators.fitted.calibration import comparable
from prill.evaluators.fitted.stack import RecordedVerdicts, Stacked, read_stack
from prill.evaluators.fitted.student import Student
from prill.evaluators.labels import latest_verdicts
from prill.io.cache import DiskCache
from prill.io.store import read_labels, read_verdicts
from prill.io.truth import SourceOption, TruthOption
from prill.models.devices import used_together
from prill.models.ledger import Budget, spending_from
from prill.models.registry import (
    AskingConfig,
    ModelConfig,
    ModelLike,
    asks_a_model,
    cache_in,
    model_options,
    part_model,
)
from prill.protocols import Captioner, Evaluator, LanguageModel

_HERE = "prill.evaluators.registry"
_log = logging.getLogger("prill.runs")
JUDGES = Registry(
    "judge",
    {
        "vlm": RegistryEntry(
            "a vision-language model that sees screenshots", "prill.evaluators.outcome:VLMJudge"
        ),
        "modular": RegistryEntry(
            "a captioner, then a language model that reads the captions",
            "prill.evaluators.outcome:CaptionJudge",
        ),
        "steps": RegistryEntry(
            "a label and a reward for every action", "prill.evaluators.steps:StepJudge"
        ),
        "webjudge": RegistryEntry(
            "key points, a rating of every frame, then the verdict",
            "prill.evaluators.webjudge:WebJudge",
        ),
        "rubric": RegistryEntry(
            "criteria of the goal, each with the state that shows it",
            "prill.evaluators.rubric:RubricJudge",
        ),
        "protocol": RegistryEntry(
            "a published judge protocol, such as WebVoyager's (prill protocols)",
            "prill.evaluators.protocols.judge:ProtocolJudge",
        ),
        "ask": RegistryEntry(
            "a question of your own, with a typed answer", "prill.evaluators.ask:AskJudge"
        ),
        "checklist": RegistryEntry(
            "the progress of every state on a checklist of the goal, and a reward for every action",
            "prill.evaluators.checklist:ChecklistJudge",
        ),
        "likelihood": RegistryEntry(
            "how likely the goal is, given what the agent did (prill train judge)",
            "prill.evaluators.likelihood:LikelihoodJudge",
        ),
        "vote": RegistryEntry("samples of one judge, or several judges", f"{_HERE}:vote"),
        "cascade": RegistryEntry(
            "a cheap judge, and a second one where it is unsure", f"{_HERE}:cascade"
        ),
        "ensemble": RegistryEntry("the weighted mean of several judges", f"{_HERE}:ensemble"),
        "student": RegistryEntry("a judge fitted to labels (prill fit)", f"{_HERE}:student"),
        "prior": RegistryEntry("the same, without reading texts", f"{_HERE}:prior"),
        "stacked": RegistryEntry(
            "a fitted judge and others, weighted by labels (prill fit)", f"{_HERE}:stacked"
        ),
        "oracle": RegistryEntry("the labels themselves", f"{_HERE}:label_oracle"),
        "noisy": RegistryEntry("the labels, with artificial errors", f"{_HERE}:noisy"),
        "self-report": RegistryEntry(
            "a success if the agent claims it", "prill.evaluators.baselines:SelfReport"
        ),
        "always-fail": RegistryEntry("failure, always", f"{_HERE}:always_fail"),
        "always-success": RegistryEntry("success, always", f"{_HERE}:always_success"),
    },
    "prill.evaluators",
)


@dataclass(frozen=True, kw_only=True)
class JudgeWrappers:
    """Wrappers that apply to any judge, from the innermost to the outermost."""

    mark_points: Annotated[
        bool, Meta(description="Mark the points that the agent touched on the screenshots.")
    ] = False
    read_points: Annotated[
        Literal["tree", "ocr"] | None,
        Meta(description="Name the elements that the agent tapped, from the UI tree or by OCR."),
    ] = None
    check_claims: Annotated[
        bool,
        Meta(
            description="Check the claims of the answer against the recording, and report them "
            "among the findings."
        ),
    ] = False
    evidence_only: Annotated[
        bool, Meta(description="Hide the agent's thoughts, answer and messages from the judge.")
    ] = False
    guard: Annotated[
        str | None,
        Meta(
            description="File of `prill train judge`. Runs unlike its training runs are left "
            "unscored."
        ),
    ] = None
    calibration: Annotated[
        str | None,
        Meta(description="File of `prill calibrate` that sets probabilities and the threshold."),
    ] = None

    def apply(self, judge: Evaluator) -> Evaluator:
        """Returns the judge with the configured wrappers. Raises UsageError."""
        if self.mark_points:
            from prill.evaluators.wrappers.marking import Marked

            judge = Marked(judge)
        if self.read_points:
            from prill.evaluators.wrappers.pointing import Pointing, read_screenshot

            judge = Pointing(judge, read_screenshot() if self.read_points == "ocr" else None)
        if self.evidence_only:
            from prill.evaluators.wrappers.rewritten import EvidenceOnly

            judge = EvidenceOnly(judge)
        if self.check_claims:
            from prill.evaluators.wrappers.claim_check import ClaimChecked

            judge = ClaimChecked(judge)
        if self.guard:
            from prill.evaluators.wrappers.guarded import Guarded, read_guard

            judge = Guarded(judge, read_guard(self.guard))
        if self.calibration:
            from prill.evaluators.fitted.calibration import Calibrated, read_calibration

            judge = Calibrated(judge, read_calibration(self.calibration))
        return judge


WRAPPER_OPTIONS = tuple(part.name for part in fields(JudgeWrappers))


class JudgeConfig(AskingConfig):
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
        if name.endswith(DESCRIPTIONS):
            return {"captioner": judge_options("modular")["captioner"], **around}
        return {**around, **judge_options(name)}

    @classmethod
    def model_options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of its model, which may be given next to the judge's own."""
        name = str(table.get("name"))
        if name.endswith(DESCRIPTIONS):
            return {}
        return super().model_options_for(
            {"name": name, "model": get_name(table.get("model")) or "NAME"}
        )

    @classmethod
    def names_with(cls, option: str) -> list[str]:
        """Returns the judges that have an option."""
        return [name for name in JUDGES.entries if option in judge_options(name)]


JudgeLike = JudgeConfig | str | Mapping[str, Any] | Evaluator
JudgeOption = Annotated[
    JudgeLike, Meta(description="Judge to use: a name, FILE.toml, FILE.json or module:Object.")
]
# A name with one of these extensions is a file that describes a judge.
DESCRIPTIONS = (".toml", ".json")


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
    if isinstance(judge, str | os.PathLike) and (path := Path(judge)).suffix in DESCRIPTIONS:
        judge, place = read_table(path), f"{path}: "
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
    if policy_model is not None and (name.endswith(DESCRIPTIONS) or takes_a_model(name)):
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
        and not name.endswith(DESCRIPTIONS)
        and "model" in judge_options(name)
        and not takes_a_model(name)
    ):
        options.setdefault("model", shared.name)  # a fitted judge's model is a file
    elif shared is not None and not name.endswith(DESCRIPTIONS) and not takes_a_model(name):
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
        if name.endswith(DESCRIPTIONS):  # it names that file
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
        raise OptionError(f"{place}name is missing; name the judge", "name")
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
        DiskCache: lambda folder, at: cache_in(folder, at, "goals.sqlite"),
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
) -> Cascade:
    """Two judges: the second is called if the first is unsure or says success."""
    if len(judges) != 2:
        raise UsageError(f"a cascade needs two judges, got {len(judges)}")
    return Cascade(judges[0], judges[1], band=band, first_may_accept=first_may_accept)


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
    labels: Annotated[str, Meta(description="Label file whose labels are returned as verdicts.")],
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
    labels: Annotated[
        str,
        Meta(description="Label file whose labels are returned as verdicts, some of them flipped."),
    ],
    spec: NoiseSpec = _NO_NOISE,
    source: SourceOption = None,
    truth: Annotated[
        str, Meta(description="Rule for several annotators, as for the judge oracle.")
    ] = "majority",
) -> NoisyLabels:
    """Returns the labels of a file as verdicts, with errors at given rates."""
    return NoisyLabels(label_oracle(labels, source, truth), spec)


def always_fail() -> Constant:
    """A judge that always says failure."""
    return Constant(False)


def always_success() -> Constant:
    """A judge that always says success."""
    return Constant(True)
