"""Mind2Web in `prill rollout`: recorded turns of conversations on web sites, step by step."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prill.commands.rollout.environments import EnvironmentKind, Setting
from prill.commands.rollout.pages import task_names
from prill.errors import UsageError
from prill.files.kinds import TRAJECTORIES
from prill.pages.steps import Marking
from prill.registry import read_options

_MOST_STEPS = 1000  # of an episode: it ends with the recording


def recorded_files(words: Sequence[str] | None) -> dict[Path, str]:
    """The files of `[SPLIT=]FILE,…`, or in folders, each with the name of its split, else its own. Raises UsageError."""
    found: dict[Path, str] = {}
    for word in (part.strip() for option in words or () for part in option.split(",")):
        split, equals, name = word.partition("=")
        place = Path(name if equals else word)
        path = place / TRAJECTORIES if place.is_dir() else place
        if not path.is_file():
            raise UsageError(f"--recordings {word}: there is no file {path} (prill convert mind2web makes one)")
        if path in found:
            raise UsageError(f"--recordings {word}: {path} is named twice, and its turns belong to one split")
        found[path] = split if equals else place.stem
    if not found:
        raise UsageError("give --recordings: files of recorded turns, which prill convert mind2web makes")
    return found


def _options(group: argparse._ArgumentGroup) -> None:
    group.description = "--tasks names recorded turns by id, or all (default); the recording goes on whatever the agent does"
    group.set_defaults(marking=None)  # filled in by the session: that of the agent's paper
    group.add_argument(
        "--recordings",
        "--data",
        action="append",
        metavar="[SPLIT=]PLACE,…",
        help="files or folders of recorded turns (from prill convert mind2web), and which part of the data each is",
    )


def _setting(args: argparse.Namespace, images: Path, assigned: Mapping[str, Any]) -> Setting[Any]:
    from prill.emulators.mind2web.environment import Mind2Web, Mind2WebSpec, Recordings

    spec = Mind2WebSpec(**_options_of(args.marking or Marking(), assigned))
    recordings = Recordings(list(recorded_files(args.recordings)))
    names = task_names(args.tasks or "all", recordings.names)
    environments = [Mind2Web(spec=spec, opened=recordings) for _ in range(args.workers or 1)]
    return Setting(
        environments,
        names,
        Mind2Web.task,
        Mind2Web.grade,
        asdict(spec),
        contents=recordings.digests,
        templates=recordings.conversations,
        sites=recordings.sites,
    )


def _options_of(marking: Marking, assigned: Mapping[str, Any]) -> dict[str, Any]:
    """What is said, else what goes with the agent."""
    from prill.emulators.mind2web.environment import Mind2WebSpec

    own = {"scheme": marking.scheme, "within": marking.top, "step_match": marking.step_match}
    return read_options(Mind2WebSpec, own | dict(assigned), "environment 'mind2web'", lax=True)


MIND2WEB = EnvironmentKind(
    "Example: prill rollout mind2web --recordings test.jsonl --policy self-map --model M -o runs/m",
    "web",
    _MOST_STEPS,
    _options,
    _setting,
    stops_early=False,
)
