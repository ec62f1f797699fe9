"""Libraries of policies as files: what loading refuses, and the prompts that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.models.prompts import estimate_tokens
from prill.papers.step.agent import ChatPolicy, StepAgent, StepSpec
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
        (
            "shop_agent.md",
            '"note"',
            '"fly"',
            "shop_agent.md: verb 'fly' is not in library.toml",
        ),
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


def test_marks_of_editors_are_read_over(folder: Path) -> None:
    for file in folder.rglob("*.*"):
        file.write_text("\ufeff" + file.read_text(), newline="\r\n")
    make_policy("step", model=ScriptedModel([]), library=str(folder))
    (folder / "find_x.md").write_bytes(b"+++\nname = 'caf\xe9'")
    load_library.cache_clear()
    with pytest.raises(UsageError, match=r"find_x.md: not UTF-8"):
        make_policy("step", model=ScriptedModel([]), library=str(folder))


def test_a_missing_or_unreadable_file_is_named(folder: Path) -> None:
    (folder / "examples" / "other.toml").write_bytes(b"\xe9")
    with pytest.raises(UsageError, match=r"other.toml: not UTF-8"):
        load_library(str(folder))
    (folder / "library.toml").unlink()
    with pytest.raises(UsageError, match=r"library.toml: No such file"):
        load_library(str(folder))


def test_a_missing_folder_names_the_others() -> None:
    with pytest.raises(
        UsageError,
        match=r"'miniwop': neither a folder .*did you mean 'miniwob'.*built-in: .*miniwob",
    ):
        make_policy("step", model=ScriptedModel([]), library="miniwop")


def test_an_unknown_root_is_refused(play: Play) -> None:
    with pytest.raises(
        UsageError,
        match=r"root: library .* has no policy 'shop_agnt' \(did you mean 'shop_agent'\?\)",
    ):
        play(root="shop_agnt")


def test_every_letter_changes_the_hash(folder: Path, tmp_path: Path) -> None:
    model = ScriptedModel([])
    before = StepAgent(model, StepSpec(library=str(folder))).fingerprint("web")
    file = folder / "examples" / "find_x.toml"
    file.write_text(file.read_text().replace("Four is red", "Four is blue"))
    load_library.cache_clear()
    after = StepAgent(model, StepSpec(library=str(folder))).fingerprint("web")
    lessons = StepAgent(model, StepSpec(library=str(folder)), lessons=["hm"]).fingerprint("web")
    shallow = StepAgent(model, StepSpec(library=str(folder), max_depth=2)).fingerprint("web")
    assert len({before, after, lessons, shallow}) == 4


async def system(play: Play, **options: object) -> str:
    agent, model = play("click [1]", **options)
    await agent.act(PAGE)
    return str(model.seen[0][0].parts[0])


async def test_callers_are_told_whom_to_call(play: Play) -> None:
    text = await system(play)
    assert "`find_x [which]`: find an x.\n`search_list [what is wanted]`: search a list." in text
    assert "`note [text]`: remember." in text
    assert "scroll" not in text  # no verb of this policy
    assert "Policies that you can call" not in await system(play, root="find_x")


async def test_examples_are_shown_with_reasons(play: Play) -> None:
    text = await system(play, root="find_x")
    assert text.count("EXAMPLE") == 2
    assert "PREVIOUS ACTIONS:\n[previous" in text
    assert "Response:\nREASON: It says three.\nACTION: stop [3]" in text


@pytest.mark.parametrize(("most", "shown"), [(0, 0), (1, 1), (9, 2)])
async def test_examples_can_be_limited(play: Play, most: int, shown: int) -> None:
    assert (await system(play, root="find_x", examples=most)).count("EXAMPLE") == shown


async def test_without_reasons_none_is_asked_for(play: Play) -> None:
    assert "REASON" not in await system(play, root="find_x", reasoning=False)


async def test_flat_prompt_has_everything(play: Play) -> None:
    text = await system(play, flat=True)
    assert [
        text.count(part)
        for part in (RULES, "EXAMPLE", "Policies that you can call", "scroll [down]")
    ] == [3, 2, 0, 1]
    agent, _ = play("find_x [q]", "click [1]", flat=True)
    await agent.act(PAGE)
    assert [event.kind for event in agent.events] == ["invalid", "act"]


@pytest.mark.parametrize("tokens", range(330, 620, 30))
async def test_flat_prompt_keeps_its_budget(play: Play, folder: Path, tokens: int) -> None:
    text = await system(play, flat=True, flat_tokens=tokens)
    agent = ChatPolicy(load_library(str(folder)))
    assert estimate_tokens(text) <= tokens
    # some of the budgets are too small for all of it
    assert agent.tokens(agent.library.flat()) > 330
    assert text.count("EXAMPLE") == text.count("Response:\nREASON:") == text.count("\nACTION: ") - 1


def test_a_hopeless_budget_is_refused(play: Play) -> None:
    with pytest.raises(
        UsageError, match="flat_tokens is too small even for a prompt without rules"
    ):
        play(flat=True, flat_tokens=10)
    with pytest.raises(UsageError, match="only with flat"):
        play(flat_tokens=4000)


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
