"""Recorded turns as an environment: teacher forcing, what goes on record, labels, and the commands
that play and judge.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prill.cli import main
from prill.episodes.loop import run_episode
from prill.io.store import iter_trajectories, read_labels, write_trajectories
from prill.papers.mind2web.environment import Mind2Web
from prill.papers.mind2web.pages.state import PageState, read_state
from prill.protocols import Abridging
from prill.testing import MockServer
from prill.types import Action, Observation, Step, Task, Trajectory

PAGE = (
    '<html backend_node_id="1"><div backend_node_id="2"><a backend_node_id="{link}" title="Link '
    '{turn}"><text '
    'backend_node_id="8">Flights {turn}.{step}</text></a><input backend_node_id="{field}" '
    'name="city"/>'
    '</div><p backend_node_id="9"><text backend_node_id="10">words that nobody '
    "needs</text></p></html>"
)
# Chooses the first candidate, or the last where the goal says so; breaks off, or waits for its
# first call, where it is told.
ACTOR = """
import os
from prill.errors import RefusalError
from prill.papers.mind2web.pages.state import read_state
from prill.types import Action, Step

class Actor:
    def reset(self, task):
        self.task = task
    async def act(self, observation):
        state = read_state(observation.text)
        if "refused" in self.task.goal:
            raise RefusalError("no")
        if not state.candidates:
            return Step(observation, Action("none"))
        id = state.candidates[0]
        return Step(observation, Action("click", f"CLICK [{id}]", target=id), f"{len(self.task.earlier)} turns before")
"""  # noqa: E501

# Counts a call a step, and has a bug as long as there is a file of that name.
BUGGY = """
from pathlib import Path
from prill.models.ledger import count_usage
from prill.types import Usage

HERE = Path(__file__).parent

def begin(task):
    if task.id == "c1-1" and (HERE / "bug").exists():
        (HERE / "bug").unlink()
        raise KeyError("a bug")
    with (HERE / "played").open("a") as file:
        file.write(task.id + "\\n")
    count_usage(Usage(1, 10, 2, 0, None))

"""


def recorded(
    conversation: str, number: int, goal: str, *targets: str, site: str = "shop"
) -> Trajectory:
    """A turn on pages with a link (5) and a field (6), of which the link ranks first; a step for
    each target.
    """
    steps = []
    for k, target in enumerate(targets):
        page = PAGE.format(link="5", field="6", turn=number, step=k)
        past = tuple(f"[link]  step {i} -> CLICK" for i in range(k))
        steps.append(
            Step(
                Observation(text=PageState(page, ("5", "6"), past).text()),
                Action("click", f"[link]  step {k} -> CLICK", target=target),
            )
        )
    id = f"{conversation}-{number}"
    metadata = {
        "conversation": conversation,
        "turn": number,
        "domain": "Travel",
        "uids": ["u"] * len(targets),
    }
    return Trajectory(
        id=id,
        task=Task(id=id, goal=goal, platform="web", site=site),
        steps=tuple(steps),
        metadata=metadata,
    )


def light(turn: Trajectory) -> Trajectory:
    return replace(
        turn, steps=tuple(replace(step, observation=Observation()) for step in turn.steps)
    )


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    """Two conversations, of two turns and of one; the last step of the second turn has no
    positive.
    """
    first = recorded("c1", 0, "Open the flights", "5", "5")
    second = recorded("c1", 1, "Now those of tomorrow", "5", "")
    second = replace(second, task=replace(second.task, earlier=(light(first),)))
    write_trajectories(
        tmp_path / "gold.jsonl", [first, second, recorded("c2", 0, "Type a city", "6")]
    )
    (tmp_path / "actor.py").write_text(ACTOR)
    return tmp_path / "gold.jsonl"


class Says:
    """Does these actions one after another, and keeps what it saw."""

    def __init__(self, *actions: Action) -> None:
        self.actions, self.seen = list(actions), list[Observation]()

    def reset(self, task: Task) -> None:
        self.task = task

    async def act(self, observation: Observation) -> Step:
        self.seen.append(observation)
        return Step(observation, self.actions.pop(0))


def click(id: str) -> Action:
    return Action("click", f"CLICK [{id}]", target=id)


async def test_recording_goes_on_whatever_is_done(gold: Path) -> None:
    environment = Mind2Web((str(gold),))
    policy = Says(click("6"), click("6"))
    episode = await run_episode(policy, environment, await environment.task("c1-0"), id="x")
    states = [read_state(seen.text or "") for seen in policy.seen]
    assert [("1.1" in s.page, "0.0" in s.page, "0.1" in s.page) for s in states] == [
        (False, True, False),
        (False, False, True),
    ]
    assert states[1].past == ("[link]  step 0 -> CLICK",)
    assert states[0].domain == "Travel"
    assert states[1].targets == ("5",), "what the recording's steps were done to, not the agent's"
    assert episode.metadata["ended_by"] == "environment"
    assert [label.label for label in (await environment.grade(episode)).steps or ()] == [
        "away",
        "away",
    ]


async def test_agents_see_nothing_of_the_answer(tmp_path: Path) -> None:
    """Two recordings that differ in what is right at the last step only are one to the agent, until
    it has acted.
    """
    shown = []
    for target, action in (
        ("5", click("5")),
        ("6", Action("type", "[textbox]  City -> TYPE: Rome", target="6", value="Rome")),
    ):
        turn = recorded("c1", 0, "Go", "5", target)
        turn = replace(turn, steps=(turn.steps[0], replace(turn.steps[1], action=action)))
        write_trajectories(tmp_path / f"{target}.jsonl", [turn])
        environment = Mind2Web((str(tmp_path / f"{target}.jsonl"),))
        policy = Says(click("5"), click("5"))
        task = await environment.task("c1-0")
        await run_episode(policy, environment, task, id="x")
        shown.append((task, policy.seen))
    assert shown[0] == shown[1]


async def test_record_keeps_what_judges_need(gold: Path) -> None:
    environment = Mind2Web((str(gold),))
    assert isinstance(environment, Abridging)
    task = await environment.task("c1-1")
    episode = await run_episode(Says(click("5"), Action("none")), environment, task, id="x")
    kept = environment.abridged(episode)
    page = kept.steps[0].observation.text or ""
    assert "<a id=5" in page and "Flights 1.0" in page
    assert "nobody needs" not in page, "only what is around the candidates"
    assert "step 0 -> CLICK" not in (kept.steps[1].observation.text or ""), (
        "the recording's answers are not told"
    )
    assert kept.task.earlier[0].steps[0].observation == Observation()
    assert kept.task.earlier[0].steps[0].action.text == "[link]  step 0 -> CLICK"
    assert (kept.metadata["conversation"], kept.metadata["turn"]) == ("c1", 1)
    assert kept.final is None


def test_rollout_records_labels_of_steps(
    gold: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "rollout",
        "mind2web",
        "--recordings",
        str(gold),
        "--policy",
        f"{tmp_path / 'actor.py'}:Actor",
    ]
    out = tmp_path / "out"
    assert main([*words, "-o", str(out)]) == 0, capsys.readouterr().err
    labels = {label.id.rpartition("-s")[0]: label for label in read_labels(out / "labels.jsonl")}
    assert {name: label.success for name, label in labels.items()} == {
        "c1-0": True,
        "c1-1": False,
        "c2-0": False,
    }
    kept = {item.task.id: item for item in iter_trajectories(out) if isinstance(item, Trajectory)}
    assert kept["c1-1"].steps[0].thought == "1 turns before"
    assert "backend_node_id" not in (out / "trajectories.jsonl").read_text()
    before = (out / "trajectories.jsonl").read_bytes()
    assert main([*words, "-o", str(out)]) == 0
    assert (out / "trajectories.jsonl").read_bytes() == before, (
        "a run that is done is not played again"
    )


def test_bench_counts_refusals_apart(
    gold: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trajectories(tmp_path / "more.jsonl", [recorded("c3", 0, "refused", "5")])
    data, out = f"cross-task={gold},cross-website={tmp_path / 'more.jsonl'}", tmp_path / "out"
    words = [
        "papers",
        "bench",
        "mind2web",
        "--recordings",
        data,
        "--policy",
        f"{tmp_path / 'actor.py'}:Actor",
        "-o",
        str(out),
    ]
    assert main(words) == 3, "one turn broke off"
    results = json.loads((out / "results.json").read_text())
    one, other = results["splits"]
    figures = {
        name: round(figure["share"], 4)
        for name, figure in one["all"]["figures"]["mt-mind2web"].items()
    }
    assert figures == {"Ele. Acc": 0.5, "Op. F1": 0.8333, "SSR": 0.375, "TSR": 0.25}
    assert (other["all"]["turns"], other["all"]["missing"]) == (0, 1)
    text = (out / "results.md").read_text()
    assert "**theirs**: MT-Mind2Web: Self-MAP (Flan-T5-base)" in text
    assert "Broke off, and count neither as right nor as wrong: 1 turns." in text
    assert "<svg" in (out / "results.svg").read_text()


def test_bench_goes_on_where_it_was_stopped(
    gold: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bug ends the run in its second episode: what was played stays, with what it asked of
    models, and is played once.
    """
    begins = ACTOR.replace("        state = ", "        begin(self.task)\n        state = ")
    (tmp_path / "buggy.py").write_text(begins.replace("class Actor:", BUGGY + "class Actor:"))
    words = [
        "papers",
        "bench",
        "mind2web",
        "--recordings",
        str(gold),
        "--policy",
        f"{tmp_path / 'buggy.py'}:Actor",
        "-o",
    ]
    (tmp_path / "bug").touch()
    with pytest.raises(KeyError):
        main([*words, str(tmp_path / "out")])
    assert (tmp_path / "played").read_text().split() == ["c1-0", "c1-0"]
    assert main([*words, str(tmp_path / "out"), "--retry-broken"]) == 0
    assert (tmp_path / "played").read_text().split() == ["c1-0", "c1-0", "c1-1", "c1-1", "c2-0"]
    assert main([*words, str(tmp_path / "whole")]) == 0
    stopped, whole = ((tmp_path / name / "results.json").read_text() for name in ("out", "whole"))
    assert stopped == whole and json.loads(whole)["usage"]["calls"] == 5
    assert (
        "3 turns, 5 steps. 5 calls, 60 tokens, cost unknown."
        in (tmp_path / "out" / "results.md").read_text()
    )


def test_judges_are_held_against_steps(
    gold: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of recorded turns goes through `score`, `agree` and `report` like any other: outcomes,
    and single steps.
    """
    monkeypatch.setenv("PRILL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    run, labels = str(tmp_path / "run"), str(tmp_path / "run" / "labels.jsonl")
    actor = f"{tmp_path / 'actor.py'}:Actor"
    assert (
        main(["rollout", "mind2web", "--recordings", str(gold), "--policy", actor, "-o", run]) == 0
    )
    with MockServer() as server:
        for judge in ("modular", "steps"):
            words = ["score", run, "--judge", judge, "--judge.captioner", "text", "--model", "mock"]
            words += ["--model.base-url", server.base_url, "-o", str(tmp_path / f"{judge}.jsonl")]
            assert main(words) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert (
        main(["agree", str(tmp_path / "modular.jsonl"), labels, "--trajectories", run, "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["judged"] == 3
    assert (
        main(
            [
                "agree",
                str(tmp_path / "steps.jsonl"),
                labels,
                "--steps",
                "--trajectories",
                run,
                "--json",
            ]
        )
        == 0
    )
    steps = json.loads(capsys.readouterr().out)
    assert (steps["judged"], steps["clusters"], steps["clustered_by"]) == (5, 3, "task")
    page = tmp_path / "page.html"
    assert (
        main(
            [
                "report",
                run,
                "--verdicts",
                str(tmp_path / "steps.jsonl"),
                "--labels",
                labels,
                "-o",
                str(page),
            ]
        )
        == 0
    )
    assert "Flights 1.0" in page.read_text()
