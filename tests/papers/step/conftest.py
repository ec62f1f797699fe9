"""A library of three policies, as a user would write it, and an agent that is answered by a
script.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prill.papers.step.agent import StepAgent
from prill.policies.registry import make_policy
from prill.testing.scripted import ScriptedModel
from prill.types import Task

LIBRARY = """
about = "A line for each element."
root = "shop_agent"
[roots]
map = "search_list"
[verbs]
click = "`click [7]`: click."
type = "`type [7] [text] [1]`: type."
scroll = "`scroll [down]`: scroll."
note = "`note [text]`: remember."
"""
POLICIES = {
    "shop_agent": (
        'purpose = "shop"\nverbs = ["click", "type", "note"]\ncalls = ["find_x", "search_list"]'
    ),
    "find_x": (
        'purpose = "find an x"\nusage = "find_x [which]"\nverbs = ["click"]\nremind = "Name '
        'the rule."'
    ),
    "search_list": (
        'purpose = "search a list"\nverbs = ["click", "scroll"]\ncalls = ["search_list"]'
    ),
}
EXAMPLES = """
[[example]]
objective = "find_x [the red one]"
observation = "[4] link 'Red x'"
reason = "Four is red."
action = "click [4]"
[[example]]
objective = "find_x [how many]"
observation = "[5] text '3 x'"
previous = ["click [4]"]
reason = "It says three."
action = "stop [3]"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the library."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "library.toml").write_text(LIBRARY)
    for name, front in POLICIES.items():
        (tmp_path / f"{name}.md").write_text(
            f'+++\nname = "{name}"\n{front}\n+++\n1. Rule of {name} at {{{{ origin }}}}.\n'
        )
    (tmp_path / "examples" / "find_x.toml").write_text(EXAMPLES)
    return tmp_path


Play = Callable[..., tuple[StepAgent, ScriptedModel]]


@pytest.fixture
def play(folder: Path) -> Play:
    """An agent on that library whose model gives these actions, one a call, or replies where they
    name themselves.
    """

    def made(
        *lines: str, goal: str = "Buy an x", site: str | None = None, **options: object
    ) -> tuple[StepAgent, ScriptedModel]:
        model = ScriptedModel(
            [line if ":" in line else f"REASON: so\nACTION: {line}" for line in lines]
        )
        agent = make_policy("step", model=model, library=str(folder), **options)
        assert isinstance(agent, StepAgent)
        agent.reset(Task(id="t", goal=goal, platform="web", site=site))
        return agent, model

    return made
