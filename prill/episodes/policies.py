"""Makes the policy of a run, with its models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prill.config.registry import Option, OptionError, list_options
from prill.config.values import get_name
from prill.emulators.settings import EnvironmentConfig, Scripts, as_text
from prill.episodes.cases import Case
from prill.errors import UsageError
from prill.models.registry import ModelConfig, ModelLike, asks_a_model, make_model, model_options
from prill.policies.registry import POLICIES, Fingerprinted, PolicyConfig, PolicyLike, make_policy
from prill.protocols import LanguageModel, Policy, PublishedAgent, SampledModel

# Model options that do not change an episode (how to reach the model, and cost limits). All other
# options are part of episode ids.
_OF_CALLS = frozenset(
    {
        *(
            "base_url",
            "api_key_env",
            "timeout",
            "retries",
            "prices",
            "budget_usd",
            "cache",
            "concurrency",
        ),
        *("reasoning_effort", "image_detail", "image_format", "gguf"),
    }
)
# Policy options that episode ids contain unchanged; all others are converted to text.
_TYPED = frozenset({"reasoning", "max_tokens", "generation", "temperature", "model", "sites"})


@dataclass(frozen=True)
class PolicyPlan:
    """The policy of a run: its name in records, its factory, and its fingerprint.

    `name` is the name in the configuration. `plays` are the tasks that it can play; None: any.
    `page_text` is how it reads a page if the environment offers several forms, `marking` how its
    paper marks recorded steps. `published`: it is the agent of a paper. `asks_model`: its steps
    call a model. `usual` are its paper's settings for this environment, and `options` the options
    that it was given.
    """

    name: str
    agent: str
    make: Callable[[Case], Policy]
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    plays: frozenset[str] | None = None
    page_text: str | None = None
    marking: object | None = None
    published: bool = False
    asks_model: bool = False
    usual: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def plan_policy(
    policy: PolicyLike,
    environment: EnvironmentConfig,
    *,
    model: ModelLike | None = None,
    temperature: float | None = None,
    workers: int = 1,
    concurrency: int = 16,
    behaviours: tuple[str, ...] = (),
) -> PolicyPlan:
    """Makes the policy of a run, with its models.

    Args:
        policy: The policy's description, or an instance.
        environment: The environment it plays in.
        model: The run's model, for a policy that names none.
        temperature: The sampling temperature; sampling differs by seed and attempt.
        workers: The number of concurrent episodes.
        concurrency: The maximum number of concurrent calls, for models that set none.
        behaviours: The scripted policy's behaviours.

    Raises:
        UsageError: The options do not describe a policy, or it cannot play there.
    """
    described = PolicyConfig.read(policy, "policy")
    made = None if isinstance(described, PolicyConfig) else described
    name: str = described.name if made is None else type(made).__name__
    maker = POLICIES.maker(name) if made is None else lambda: made
    own = list_options(maker)
    options: dict[str, Any] = {} if made is not None else described.mapping()
    options.pop("name", None)
    given_options = {key: value for key, value in options.items() if key in own and key != "model"}
    asks = asks_a_model(maker)
    given = {"behaviour": behaviours or None, "model": _name(model), "temperature": temperature}
    _refuse_foreign(name, own, given)
    if name == "scripted":
        if options:  # the behaviour is set per episode
            raise UsageError(
                f"policy: `scripted` has no options, got {', '.join(options)}",
                parameters=("policy",),
            )
        if (scripts := environment.scripts()) is not None:
            return _plan_scripts(scripts, behaviours)
    shown, called = _get_model(own, options, model, concurrency) if asks else (None, None)
    options = {**_run_options(name, own, given, asks, environment), **options}
    # A policy that samples by itself samples again for each seed and attempt.
    drawn = [key for key in ("seed", "attempt") if key in own and key not in options]

    def make(case: Case) -> Policy:
        if made is not None:
            return made  # type: ignore[no-any-return]
        of_case: dict[str, Any] = {key: getattr(case, key) for key in drawn}
        if case.behaviour is not None:
            of_case["behaviour"] = case.behaviour
        model: dict[str, Any] = (
            {} if called is None else {"model": _drawn(temperature, called, case)}
        )
        return make_policy(name, **options, **of_case, **model)

    try:
        one = make(Case(""))
    except OptionError as error:
        raise OptionError(f"policy.{error}", error.option) from None
    if workers > 1 and make(Case("")) is one:
        raise UsageError(
            f"{name} is a policy object, but every worker needs a policy of its own; give a class",
            parameters=("workers",),
        )
    fingerprint = {
        key: value if key in _TYPED else as_text(value)
        for key, value in options.items()
        if key != "trajectories"
    }
    if called is not None and shown is not None:
        # A policy that samples by itself has its own default.
        degrees = (
            options.get("temperature", own["temperature"].default)
            if "temperature" in own
            else temperature or 0.0
        )
        fingerprint |= {"model": shown.pop("name"), "temperature": degrees, **_of_model(shown)}
    if isinstance(one, Fingerprinted):
        fingerprint["asked"] = one.fingerprint(environment.platform)
        fingerprint.pop("adapter", None)  # the fingerprint has its weights; the path may change
    last = name.rpartition(":")[2]
    return PolicyPlan(
        name,
        last if called is None else f"{last}/{called.name}",
        make,
        fingerprint,
        getattr(one, "plays", None),
        getattr(one, "page_text", None),
        getattr(one, "marking", None),
        isinstance(one, PublishedAgent),
        called is not None,
        one.usual_settings(environment.name) if isinstance(one, PublishedAgent) else {},
        {key: as_text(value) for key, value in given_options.items()},
    )


def shared_model(
    model: ModelLike | None, other: ModelLike | None, concurrency: int
) -> LanguageModel:
    """Makes another model with the run's settings, or returns the run's own model.

    `concurrency` is for models that set none. Raises UsageError if no model is named, or an option
    is not an option of the model.
    """
    return _shared(model, other, concurrency)[1]


def _shared(
    model: ModelLike | None,
    other: ModelLike | None,
    concurrency: int,
    given: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], LanguageModel]:
    """Returns the model's table, including its name, and the model."""
    for one in (other, model if other is None else None):
        if one is not None and not isinstance(one, str | Mapping | ModelConfig):
            made = make_model(one, **(given or {}))
            return {"name": made.name}, made
    of_run = (
        {} if model is None or not isinstance(model, str | Mapping | ModelConfig) else _table(model)
    )
    named = {} if other is None else _table(other)
    name = named.get("name") or of_run.get("name")
    if not isinstance(name, str) or not name:
        raise UsageError(
            "model is missing; give a model at the endpoint, or `embedded`", parameters=("model",)
        )
    names = model_options(name)
    # Options of the run's model apply to another model if it has them.
    usual = {key: value for key, value in of_run.items() if key in names or not named}
    table = {
        **({"concurrency": concurrency} if "concurrency" in names else {}),
        **usual,
        **named,
        **(given or {}),
        "name": name,
    }
    return table, make_model(dict(table))


def _table(model: ModelLike) -> dict[str, Any]:
    table: dict[str, Any] = ModelConfig.read(model, "model").mapping()
    return table


def _name(model: ModelLike | None) -> Any:
    name = None if model is None else get_name(model)
    return name or None


def _get_model(
    own: Mapping[str, Option], options: dict[str, Any], model: ModelLike | None, concurrency: int
) -> tuple[dict[str, Any] | None, LanguageModel | None]:
    """Makes the policy's model and returns it with its table.

    The model's options are removed from those of the policy.
    """
    other = options.pop("model", None)
    named = _name(other) or _name(model)
    if named is None and other is None and not own["model"].required:
        return None, None
    among = {
        key: options.pop(key) for key in model_options(named) if key in options and key not in own
    }
    return _shared(model, other, concurrency, among)


def _run_options(
    name: str,
    own: Mapping[str, Option],
    given: Mapping[str, Any],
    asks: bool,
    environment: EnvironmentConfig,
) -> dict[str, Any]:
    """Returns the policy options that the run sets."""
    options: dict[str, Any] = {}
    if given["temperature"] is not None and "temperature" in own:
        options["temperature"] = given["temperature"]
    if given["model"] is not None and "model" in own and not asks:
        options["model"] = given["model"]
    if name == "react":
        if getattr(environment, "text", None) == "html":
            raise UsageError(
                "text: react refers to elements by line numbers, so html cannot be used; "
                "leave it out",
                parameters=("text",),
            )
        options |= {"sites": environment.known_sites(), "typing": environment.types()}
    return options


def _refuse_foreign(name: str, own: Mapping[str, Option], given: Mapping[str, Any]) -> None:
    """Raises UsageError for an option of other policies, and names those policies."""
    for option, value in given.items():
        if value is None or option in own or (option == "temperature" and "model" in own):
            continue
        able = ", ".join(PolicyConfig.names_with("model" if option == "temperature" else option))
        raise UsageError(
            f"{option}: policy {name} has no such option; policies with this option: {able}",
            parameters=(option,),
        )


def _plan_scripts(scripts: Scripts, behaviours: tuple[str, ...]) -> PolicyPlan:
    """Makes the plan of the scripted policy from the environment's solutions."""
    if other := set(behaviours) - set(scripts.behaviours):
        there = " and ".join(scripts.behaviours)
        are = "is" if len(scripts.behaviours) == 1 else "are"
        raise UsageError(
            f"behaviour {', '.join(sorted(other))}: {scripts.where} there {are} {there}",
            parameters=("behaviour",),
        )
    return PolicyPlan(
        "scripted",
        "scripted",
        lambda case: scripts.play(case.task, case.seed, case.behaviour or "solve"),
        plays=scripts.plays,
    )


def _of_model(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the model options that are part of episode ids.

    Options for reaching the model are excluded; an adapter is identified by its weights, not its
    path.
    """
    found = {
        f"model.{key}": as_text(value) for key, value in options.items() if key not in _OF_CALLS
    }
    if (adapter := options.get("adapter")) is not None:
        from prill.models.local.choices import weights_hash

        found["model.adapter"] = weights_hash(adapter)
    return found


def _drawn(temperature: float | None, model: LanguageModel, case: Case) -> LanguageModel:
    """Returns the model at a sampling temperature.

    The same case gets the same seed; another attempt gets another seed.
    """
    if not temperature:
        return model
    if not isinstance(model, SampledModel):
        raise UsageError(
            f"temperature: {model.name} only supports temperature 0", parameters=("temperature",)
        )
    return model.sampled(temperature, 1000 * case.seed + case.attempt)
