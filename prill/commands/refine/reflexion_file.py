"""The file of `prill reflexion --config`: TOML or JSON, with options under the names that they have as flags and in Python."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from prill.emulators.registry import ENVIRONMENTS
from prill.errors import UsageError
from prill.files.toml import read_table
from prill.policies.registry import POLICIES
from prill.refine.reflector import ReflectorSpec
from prill.refine.retries import RetrySpec
from prill.registry import nearest, options_of, read_options

# Flags that are no options of a run, but of one call of the command.
_NEVER = ("judge", "set", "help")
# The flags that an option of the policy has another name under.
_OTHER_NAMES = {"reasoning": "--direct", "trajectories": "--replay"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflexionFile:
    """What such a file holds."""

    episodes: Annotated[dict[str, Any], Meta(description="tasks, seeds, and how episodes are played")] = field(
        default_factory=dict
    )
    policy: Annotated[dict[str, Any], Meta(description="name, model, and options of the policy")] = field(default_factory=dict)
    environment: Annotated[dict[str, Any], Meta(description="options of the environment")] = field(default_factory=dict)
    judge: Annotated[dict[str, Any], Meta(description="evaluator, second, and the options of the judge")] = field(
        default_factory=dict
    )
    retries: Annotated[dict[str, Any], Meta(description="how a task is tried again")] = field(default_factory=dict)
    lessons: Annotated[dict[str, Any], Meta(description="how lessons are drawn")] = field(default_factory=dict)


def read_reflexion_file(path: str) -> ReflexionFile:
    """The file, the tables `retries` and `lessons` checked. Raises UsageError that names the place."""
    table = read_table(path)
    try:
        file = ReflexionFile(**read_options(ReflexionFile, table, "a file of retries"))
        read_options(RetrySpec, file.retries, "the retries", place="retries.")
        own = {key: value for key, value in file.lessons.items() if key in options_of(ReflectorSpec)}
        read_options(ReflectorSpec, own, "the lessons", place="lessons.")
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return file


def words_of(
    file: ReflexionFile, path: str, environment: str, parser: argparse.ArgumentParser, given: Sequence[str]
) -> list[str]:
    """The file as words for the parser of that environment, without what is `given` on the command line as well.

    The judge's own options are no words: see `judge_of`. Raises UsageError, for an option that is unknown, with its place.
    """
    groups = {group.title: group._group_actions for group in parser._action_groups}
    said = {word.partition("=")[0] for word in given if word.startswith("-")}
    policy = dict(file.policy)
    name = policy.pop("name", None)
    words = [] if name is None or said & {"--policy", "--actor"} else [f"--policy={name}"]
    of_policy = _names(POLICIES, str(name or _said(given, "--policy", "--actor") or "react"))
    sections: tuple[tuple[str, dict[str, Any], tuple[str, ...], tuple[str, ...]], ...] = (
        ("episodes", file.episodes, ("episodes",), ()),
        ("policy", policy, ("policy", "model"), of_policy),
        ("environment", file.environment, (environment,), _names(ENVIRONMENTS, environment)),
        ("retries", file.retries, ("retries",), ()),
        ("lessons", file.lessons, ("lessons",), ()),
    )
    for section, table, titles, settable in sections:
        titles = tuple(title if title in groups else "module:Object|file.py:Object" for title in titles)
        flags = {action.dest: action for title in titles for action in groups[title] if action.dest not in _NEVER}
        for key, value in table.items():
            place = f"{path}: {section}.{key}"
            if value is None and key in (*flags, *settable):  # JSON's null: as if it were left out
                continue
            if key in flags:
                words += _words_of_flag(flags[key], value, place, said)
            elif key not in settable:
                names = sorted({*flags, *settable} - {"policy"})
                raise UsageError(f"{place}: there is no such option{nearest(key, names)}; there are: {', '.join(names)}")
            elif _OTHER_NAMES.get(key) not in said:
                text = value if isinstance(value, str) else json.dumps(value)
                words += ["--set", f"{section}.{key}={text}"]
    for key, flag in (("evaluator", "--evaluator"), ("model", "--judge-model"), ("second", "--second")):
        if (value := file.judge.get(key)) is not None and flag not in said:
            words.append(f"{flag}={value}")
    return words


def judge_of(file: ReflexionFile) -> dict[str, Any]:
    """The judge's own options."""
    return {key: value for key, value in file.judge.items() if key not in ("evaluator", "model", "second")}


def _names(registry: Any, name: str) -> tuple[str, ...]:
    return tuple(options_of(registry.maker(name)))


def _said(words: Sequence[str], *flags: str) -> str | None:
    """The value that one of these flags has among the words; the last counts."""
    value = None
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, equals, text = word.partition("=")
        if flag in flags:
            value = text if equals else following
    return value


def _words_of_flag(action: argparse.Action, value: Any, place: str, said: set[str]) -> Iterator[str]:
    """The flag with that value, unless the command line gives it."""
    if said & {*action.option_strings}:
        return
    flag = next(word for word in action.option_strings if word.startswith("--"))
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UsageError(f"{place}: expected true or false, got {value!r}")
        if value:
            yield flag
        elif f"--no-{flag[2:]}" in action.option_strings:
            yield f"--no-{flag[2:]}"
        return
    if isinstance(value, Mapping | bool):
        raise UsageError(f"{place}: expected a text, a number or a list, got {value!r}")
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    try:
        read = action.type(text) if callable(action.type) else text
    except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
        raise UsageError(f"{place}: {error}, got {value!r}") from None
    if action.choices is not None and read not in action.choices:
        raise UsageError(f"{place}: choose from {', '.join(map(str, action.choices))}, got {value!r}")
    yield f"{flag}={text}"
