"""The file of `prill reflexion --config`: TOML or JSON, with options under the names that they have as flags and in Python."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from prill.commands.rollout.tables import PARTS, flags_of, unknown_key, words_of_flag
from prill.emulators.registry import ENVIRONMENTS
from prill.errors import UsageError
from prill.files.toml import read_table
from prill.policies.registry import POLICIES
from prill.refine.reflector import ReflectorSpec
from prill.refine.retries import RetrySpec
from prill.registry import check_options, options_of, read_options

# Flags that are no options of a run, but of one call of the command.
_NEVER = ("judge", "set", "policy")
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
    said = {word.partition("=")[0] for word in given if word.startswith("-")}
    policy = dict(file.policy)
    name = policy.pop("name", None)
    _expect_text(name, f"{path}: policy.name")
    names = ("--policy", "--actor", "--agent")
    words = [] if name is None or said & {*names} else [f"--policy={name}"]
    makers = {
        "policy": POLICIES.maker(_said(given, *names) or name or "react"),
        "environment": ENVIRONMENTS.maker(environment),
    }
    sections: tuple[tuple[str, dict[str, Any], tuple[str, ...], tuple[str, ...]], ...] = (
        ("episodes", file.episodes, ("episodes",), ()),
        ("policy", policy, ("policy", "model"), tuple(options_of(makers["policy"]))),
        ("environment", file.environment, (environment,), tuple(options_of(makers["environment"]))),
        ("retries", file.retries, ("retries",), ()),
        ("lessons", file.lessons, ("lessons",), ()),
    )
    titles_there = {group.title for group in parser._action_groups}
    for section, table, titles, settable in sections:
        titles = tuple(title if title in titles_there else "module:Object|file.py:Object" for title in titles)
        flags = flags_of(parser, titles, without=_NEVER)
        for key, value in table.items():
            place = f"{path}: {section}.{key}"
            if value is None and key in (*flags, *settable):  # JSON's null: as if it were left out
                continue
            if key in settable:
                check_options(makers[section], {key: value}, f"the {section}", place=f"{path}: {section}.", parts=PARTS)
            if key in flags:
                given_here = list(words_of_flag(flags[key], value, place))  # checked also where it does not count
                words += [] if said & {*flags[key].option_strings} else given_here
            elif key not in settable:
                raise unknown_key(key, {*flags, *settable}, f"{path}: {section}.")
            elif _OTHER_NAMES.get(key) not in said:
                text = value if isinstance(value, str) else json.dumps(value)
                words += ["--set", f"{section}.{key}={text}"]
    for key, flag in (("name", "--judge"), ("evaluator", "--judge"), ("model", "--judge-model"), ("second", "--second")):
        value = file.judge.get(key)
        _expect_text(value, f"{path}: judge.{key}")
        if value is not None and flag not in said:
            words.append(f"{flag}={value}")
    return words


def judge_of(file: ReflexionFile) -> dict[str, Any]:
    """The judge's own options."""
    return {key: value for key, value in file.judge.items() if key not in ("name", "evaluator", "model", "second")}


def _expect_text(value: object, place: str) -> None:
    if not isinstance(value, str | None):
        raise UsageError(f"{place}: expected a text, got {value!r}")


def _said(words: Sequence[str], *flags: str) -> str | None:
    """The value that one of these flags has among the words; the last counts."""
    value = None
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, equals, text = word.partition("=")
        if flag in flags:
            value = text if equals else following
    return value
