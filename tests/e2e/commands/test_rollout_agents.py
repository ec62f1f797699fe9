"""`prill rollout` with policies that ask a model: a scripted endpoint answers over HTTP, and the
environments are real.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from prill.evaluators.evidence import action_text
from prill.io.store import iter_trajectories, read_labels, read_verdicts
from prill.types import Trajectory, Verdict
from tests.support.android import FakeAdb
from tests.support.commands.endpoint import Endpoint

Prill = Callable[..., subprocess.CompletedProcess[str]]
PHRASE = "In summary, the next action I will perform is"
REFUSAL = {"content": None, "refusal": "I would rather not"}


def in_order(*replies: str) -> Callable[[str], str]:
    left = list(replies)
    return lambda turn: left.pop(0)


def acting(action: str, thought: str = "I see.") -> str:
    return f"{thought} {PHRASE} ```{action}```"


def number(turn: str, element: str) -> str:
    """The number of the first line that shows this element."""
    found = re.search(rf"^\s*\[(\d+)\] {re.escape(element)}", turn, re.MULTILINE)
    assert found, f"{element} is not in {turn}"
    return found[1]


def recorded(out: Path) -> dict[str, Trajectory]:
    """What was recorded, by the name of the task."""
    items = list(iter_trajectories(out / "trajectories.jsonl"))
    return {item.task.site or item.task.id: item for item in items}


def texts(trajectory: Trajectory) -> list[str]:
    """The actions as judges read them."""
    return [action_text(step.action, trajectory.task.platform) for step in trajectory.steps]


@pytest.mark.usefixtures("chromium")
def test_react_episodes_in_miniwob(prill: Prill, tmp_path: Path) -> None:
    def answer(turn: str) -> str | dict[str, object] | int:
        if "Click on the link" in turn:
            return REFUSAL
        if "into the text field" not in turn:
            return "I would click the button."
        if "PREVIOUS ACTION:\nNone" in turn:
            name = turn.partition('Enter "')[2].partition('"')[0]
            return acting(f"type [{number(turn, 'textbox')}] [{name}] [0]", "The field is empty.")
        return acting(f"click [{number(turn, 'button')}]")

    words = ("--tasks", "click-link,enter-text,click-button", "--policy", "react", "-o", "out")
    with Endpoint(answer) as endpoint:
        done = prill("rollout", "miniwob", *words, *endpoint.words, "--json")
        again = prill("rollout", "miniwob", *words, *endpoint.words, "--json")
    assert (done.returncode, again.returncode) == (3, 0), done.stderr
    counts = json.loads(done.stdout)
    assert (counts["success"], counts["failure"], counts["broken"]) == (1, 1, 1)
    assert json.loads(again.stdout)["skipped"] == 3
    kept = recorded(tmp_path / "out")

    solved = kept["enter-text"]
    name = solved.task.goal.partition('"')[2].partition('"')[0]
    assert [step.action.value for step in solved.steps] == [name, None]
    assert texts(solved) == [f'type [{name}] at [textbox value ""]', 'click at [button "Submit"]']
    assert [step.thought for step in solved.steps] == ["The field is empty.", "I see."]
    assert (solved.agent, solved.error, solved.metadata["ended_by"]) == (
        "react/m",
        None,
        "environment",
    )

    refused = kept["click-link"]
    assert (
        refused.error
        == "the agent's model gave no action (refusal): the model declined: 'I would rather not'"
    )
    assert (refused.steps, refused.answer) == ((), None)

    unread = kept["click-button"]
    assert texts(unread) == ["I would click the button."] * 3
    assert unread.metadata["stopped"] == "3 actions in a row could not be parsed"
    assert "the reply has no action between triple back-ticks" in endpoint.turns[-1]

    labels = {label.id: label.success for label in read_labels(tmp_path / "out" / "labels.jsonl")}
    assert labels == {solved.id: True, refused.id: None, unread.id: False}


@pytest.mark.usefixtures("chromium")
def test_react_on_the_shop_can_be_judged(prill: Prill, tmp_path: Path) -> None:
    def answer(turn: str) -> str:
        if "URL: http://onestopmarket.com/\n" in turn:
            return acting(
                f"click [{number(turn, 'link ' + repr('Alder Desk Lamp'))}]",
                "The reviews are on its page.",
            )
        return acting("stop [Ines Okafor and Tom Birch]")

    with Endpoint(answer) as endpoint:
        words = ("webarena", "--shop", "--tasks", "1002", "--policy", "react", *endpoint.words)
        done = prill("rollout", *words, "-o", "out", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["success"] == 1
    (kept,) = recorded(tmp_path / "out").values()
    assert (kept.answer, kept.error) == ("Ines Okafor and Tom Birch", None)
    assert texts(kept) == ["click at [link 'Alder Desk Lamp']", "stop [Ines Okafor and Tom Birch]"]
    assert [step.observation.url for step in kept.steps] == [
        "http://onestopmarket.com/",
        "http://onestopmarket.com/alder-desk-lamp.html",
    ]
    assert "click [" in endpoint.turns[1] and "where [" in endpoint.turns[1]
    assert "127.0.0.1" not in "".join(endpoint.turns), "agents know the sites by their public names"
    judged = prill(
        "score", "out/trajectories.jsonl", "--judge", "self-report", "-o", "verdicts.jsonl"
    )
    assert judged.returncode == 0, judged.stderr
    (verdict,) = (
        item for item in read_verdicts(tmp_path / "verdicts.jsonl") if isinstance(item, Verdict)
    )
    assert verdict.success is True


def test_cogagent_taps_where_it_says(prill: Prill, tmp_path: Path, fake_adb: FakeAdb) -> None:
    replies = in_order(
        "Action: Open the settings.\nGrounded Operation: CLICK(box=[[100,180,240,220]], "
        "element_info='Settings')",
        "Action: Turn it on.\nGrounded Operation: CLICK(box=[[400,210,600,290]], "
        "element_info='Bluetooth')",
        "Action: It is on.\nGrounded Operation: END()",
    )
    with Endpoint(replies) as endpoint:
        words = (
            "--goal",
            "Turn on Bluetooth",
            "--policy",
            "cogagent",
            "--adb-port",
            fake_adb.port,
            *endpoint.words,
        )
        done = prill("rollout", "android", *words, "-o", "out")
    assert done.returncode == 0, done.stderr
    assert fake_adb.phone().screen.toggles["Bluetooth"]
    assert endpoint.pictures == [(720, 1600)] * 3
    assert (
        "0. CLICK(box=[[100,180,240,220]], element_info='Settings')\tOpen the settings.\n1. "
        in endpoint.turns[2]
    )
    (kept,) = recorded(tmp_path / "out").values()
    assert [(step.action.kind, step.action.point) for step in kept.steps] == [
        ("click", (0.17, 0.2)),
        ("click", (0.5, 0.25)),
        ("stop", None),
    ]
    assert "Bluetooth' checked: true" in (kept.steps[-1].observation.text or "")
    assert (kept.agent, kept.answer, kept.metadata["ended_by"]) == ("cogagent/m", None, "agent")


def test_refused_key_keeps_what_is_finished(
    prill: Prill, tmp_path: Path, fake_adb: FakeAdb
) -> None:
    def answer(turn: str) -> str | int:
        if "second" in turn:
            return 401
        if "[previous" not in turn:
            return acting(f"tap [{number(turn, 'button ' + repr('Search'))}]")
        if "type [" not in turn.partition("PREVIOUS ACTION")[2]:
            return acting(f"type [{number(turn, 'textbox')}] [cafe] [1]")
        return acting("stop [10 results]")

    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(
        "".join(
            json.dumps({"id": name, "goal": f"The {name} search"}) + "\n"
            for name in ("first", "second")
        )
    )
    with Endpoint(answer) as endpoint:
        words = (
            "--tasks",
            tasks,
            "--policy",
            "react",
            "--adb-port",
            fake_adb.port,
            *endpoint.words,
        )
        done = prill("rollout", "android", *words, "-o", "out")
    assert done.returncode == 2
    assert "refused the key in $OPENAI_API_KEY" in done.stderr and "Traceback" not in done.stderr
    (kept,) = recorded(tmp_path / "out").values()
    assert (kept.task.id, kept.answer) == ("first", "10 results")
    assert kept.steps[-1].observation.text is not None
    assert "Results for cafe" in kept.steps[-1].observation.text
