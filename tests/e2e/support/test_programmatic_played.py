"""Programs that solve MiniWoB++, played in the real Chromium through the one loop."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from prill.emulators.miniwob.environment import MiniWoB
from prill.episodes.loop import run_episode
from tests.support.chromium import need_chromium
from tests.support.programmatic.nodes import nodes_of
from tests.support.programmatic.policy import Programmatic
from tests.support.programmatic.screen import Node, Screen

PLAYED = (
    "click-dialog",
    "click-widget",
    "enter-password",
    "click-checkboxes-soft",
    "click-collapsible-2",
    "click-scroll-list",
    "choose-date-medium",
    "email-inbox-nl-turk",
    "search-engine",
    "login-user-popup",
    "social-media",
    "book-flight",
)


SEEDS = (40, 41)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MiniWoB]:
    need_chromium("miniwob")
    environment = MiniWoB(tmp_path_factory.mktemp("images"), text="html", timeout=300)
    yield environment
    await environment.close()


async def solved(
    environment: MiniWoB, policy: Programmatic, name: str, seed: int
) -> tuple[bool, str]:
    """Whether the page rewards the episode, and what to look at where it does not."""
    task = await environment.task(name, seed)
    trajectory = await run_episode(policy, environment, task, id=f"{name}-{seed}")
    label = await environment.grade(trajectory)
    return bool(
        label.success
    ), f"{task.goal!r}: {label.note}; {[step.action for step in trajectory.steps]}"


def bare(html: str) -> Screen:
    """The page for an agent that is told no attributes, as SteP is not: an id in place of words,
    words beside tags apart.
    """
    told: list[Node] = []
    for node in nodes_of(html):
        kind = node.attributes.get("type", "")
        tag = f"input_{kind}" if node.tag == "input" and kind else node.tag
        told.append(
            Node(
                node.ref, tag, "" if tag == "label" else node.text or node.attributes.get("id", "")
            )
        )
        if kind and (words := re.search(rf'data-wob_ref="{node.ref}">([^<]+)</label>', html)):
            told.append(Node(-node.ref, "t", words[1]))
    return told


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", PLAYED)
async def test_a_plan_is_carried_out_blindly(environment: MiniWoB, name: str) -> None:
    won, said = await solved(environment, Programmatic(staged=True), name, SEEDS[0])
    assert won, said


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", PLAYED)
async def test_only_the_first_move_is_taken(environment: MiniWoB, name: str) -> None:
    won, said = await solved(environment, Programmatic(), name, SEEDS[1])
    assert won, said


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ["choose-date-easy", "email-inbox", "click-option"])
async def test_tags_and_words_are_told_alone(environment: MiniWoB, name: str) -> None:
    won, said = await solved(environment, Programmatic(view=bare), name, SEEDS[0])
    assert won, said
