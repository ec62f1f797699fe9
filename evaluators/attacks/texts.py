"""Loads the attack texts from `texts.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import cycle, islice
from types import MappingProxyType
from zlib import crc32

from prill.models.prompts import Prompt, content_hash
from prill.types import Trajectory


@dataclass(frozen=True, slots=True)
class AttackTexts:
    """The texts by name, the lists of lines by name, the set's version, and a hash of all of it."""

    version: str
    texts: Mapping[str, Prompt]
    lists: Mapping[str, Sequence[Prompt]]
    hash: str

    def of(self, name: str, trajectory: Trajectory) -> str:
        """The text for a trajectory."""
        return _filled(self.texts[name], trajectory)

    def lines(self, name: str, trajectory: Trajectory, count: int) -> list[str]:
        """So many lines of a list for a trajectory, from a line on that depends on the trajectory's
        id.
        """
        prompts = self.lists[name]
        first = draw(trajectory, len(prompts))
        return [
            _filled(prompt, trajectory) for prompt in islice(cycle(prompts), first, first + count)
        ]


@cache
def attack_texts() -> AttackTexts:
    """The texts of `texts.toml`."""
    raw = (files("prill.evaluators.attacks") / "texts.toml").read_text(encoding="utf-8")
    read = tomllib.loads(raw)
    texts = {name: Prompt(name, text) for name, text in read["texts"].items()}
    lists = {
        name: tuple(Prompt(name, line) for line in lines) for name, lines in read["lists"].items()
    }
    return AttackTexts(
        read["version"], MappingProxyType(texts), MappingProxyType(lists), content_hash(raw)
    )


def one_line_goal(trajectory: Trajectory) -> str:
    """The goal without line breaks."""
    return " ".join(trajectory.task.goal.split())


def draw(trajectory: Trajectory, count: int) -> int:
    """A number below `count` that depends on the trajectory's id alone."""
    return crc32(trajectory.id.encode("utf-8", "surrogatepass")) % count


def _filled(prompt: Prompt, trajectory: Trajectory) -> str:
    return prompt.fill({"goal": one_line_goal(trajectory)} if prompt.slots else {})["user"]
