"""Libraries of policies as files: what loading refuses, and the prompts that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.models.prompts import estimate_tokens
from prill.papers.step.agent import ChatPolicy, StepAgent
from prill.papers.step.library import library_for, load_library, shipped_libraries
from prill.policies.registry import make_policy
from prill.testing.scripted import ScriptedModel
from prill.types import Observation, Task

Play = Callable[..., tuple[StepAgent, ScriptedModel]]
PAGE = Observation(text="[1] link 'Home'")
RULES = "1. Rule of"


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        (
            "shop_agent.md",
            '"find_x"',
            '"find_y"',
            "shop_agent.md: calls 'find_y': the library has no policy of that name",
        ),
        ("shop_agent.md", '"note"', '"fly"', "shop_agent.md: verb 'fly' is not in library.toml"),
        (
            "find_x.md",
            'name = "find_x"',
            'name = "find_z"',
            "find_x.md: the name 'find_z' must equal the file name",
        ),
        ("find_x.md", "purpose", "porpoise", "find_x.md: Object contains unknown field `porpoise`"),
        ("find_x.md", 'purpose = "', "purpose = ", "find_x.md: Invalid value (at line 3,"),
        (
            "find_x.md",
            "+++",
            "---",
            "find_x.md: expected name, purpose and verbs as TOML between two lines +++",
        ),
        (
            "find_x.md",
            "{{ origin }}",
            "{{ host }}",
            "find_x.md: unknown placeholder 'host' in the rules",
        ),
        (
            "library.toml",
            'scroll = "',
            'drag = "',
            "library.toml: verbs: 'drag' is not one of the actions",
        ),
        (
            "library.toml",
            '"search_list"',
            '"gone"',
            "library.toml: map is 'gone': the library has no policy",
        ),
        (
            "examples/find_x.toml",
            "click [4]",
            "fly [4]",
            "find_x.toml: example 1: 'fly' is not one of this policy's verbs",
        ),
        (
            "examples/find_x.toml",
            "reason",
            "raisin",
            "find_x.toml: Object contains unknown field `raisin`",
        ),
    ],
)
def test_loading_says_what_is_wrong(
    folder: Path, file: str, old: str, new: str, problem: str
) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    with pytest.raises(UsageError) as caught:
        make_policy("step", model=ScriptedModel([]), library=str(folder))
    assert str(caught.value).startswith(str(folder / file))
    assert problem in str(caught.value)


async def system(play: Play, **options: object) -> str:
    agent, model = play("click [1]", **options)
    await agent.act(PAGE)
    return str(model.seen[0][0].parts[0])


async def test_examples_are_shown_with_reasons(play: Play) -> None:
    text = await system(play, root="find_x")
    assert text.count("EXAMPLE") == 2
    assert "PREVIOUS ACTIONS:\n[previous" in text
    assert "Response:\nREASON: It says three.\nACTION: stop [3]" in text


async def test_flat_prompt_has_everything(play: Play) -> None:
    text = await system(play, flat=True)
    assert [
        text.count(part)
        for part in (RULES, "EXAMPLE", "Policies that you can call", "scroll [down]")
    ] == [3, 2, 0, 1]
    agent, _ = play("find_x [q]", "click [1]", flat=True)
    await agent.act(PAGE)
    assert [event.kind for event in agent.events] == ["invalid", "act"]


@pytest.mark.parametrize("tokens", range(360, 650, 30))
async def test_flat_prompt_keeps_its_budget(play: Play, folder: Path, tokens: int) -> None:
    text = await system(play, flat=True, flat_tokens=tokens)
    agent = ChatPolicy(load_library(str(folder)))
    assert estimate_tokens(text) <= tokens
    # some of the budgets are too small for all of it
    assert agent.tokens(agent.library.flat()) > 360
    assert text.count("EXAMPLE") == text.count("Response:\nREASON:") == text.count("\nACTION: ") - 1


@pytest.mark.parametrize("name", shipped_libraries())
def test_every_shipped_library_loads(name: str) -> None:
    library = load_library(name)
    assert library.templates
    asking = ChatPolicy(library)
    # The paper keeps every template under 4,000 tokens.
    sizes = {name: asking.tokens(template) for name, template in library.templates.items()}
    assert not {name: size for name, size in sizes.items() if size > 4000}


def test_tasks_find_their_library() -> None:
    assert (
        library_for("auto", Task(id="miniwob/click-test?seed=1", goal="", site="click-test")).name
        == "miniwob"
    )
