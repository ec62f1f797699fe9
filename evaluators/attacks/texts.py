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
    """The texts and lists of lines by name, the version of the set, and its hash."""

    version: str
    texts: Mapping[str, Prompt]
    lists: Mapping[str, Sequence[Prompt]]
    hash: str

    def of(self, name: str, trajectory: Trajectory) -> str:
        """Returns the named text, filled in for a trajectory."""
        return _filled(self.texts[name], trajectory)

    def lines(self, name: str, trajectory: Trajectory, count: int) -> list[str]:
        """Returns `count` lines of a list, starting at a line chosen by the trajectory's id."""
        prompts = self.lists[name]
        first = draw(trajectory, len(prompts))
        return [
            _filled(prompt, trajectory) for prompt in islice(cycle(prompts), first, first + count)
        ]


@cache
def attack_texts() -> AttackTexts:
    """Returns the texts of `texts.toml`."""
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
    """Returns the goal without line breaks."""
    return " ".join(trajectory.task.goal.split())


def draw(trajectory: Trajectory, count: int) -> int:
    """Returns a number below `count` that depends only on the trajectory's id."""
    return crc32(trajectory.id.encode("utf-8", "surrogatepass")) % count


def _filled(prompt: Prompt, trajectory: Trajectory) -> str:
    return prompt.fill({"goal": one_line_goal(trajectory)} if prompt.slots else {})["user"]
