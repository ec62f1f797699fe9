"""`--budget-usd`: one budget for all models of a run, remembered over its starts."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prill.io.store import read_verdicts
from prill.models.ledger import Price
from prill.testing import MockServer
from tests.support.commands.command import Prill, environment, write_trajectories
from tests.support.commands.endpoint import Endpoint
from tests.unit.commands.test_reflexion import COUNTER

CALL = 0.018  # the scripted endpoint counts 9 tokens of request and 9 of reply
# what a policy, and a judge and a reflector say
GIVES_UP = "```stop [9]```"
NOT_CONTENT = '{"thoughts": "so it looks", "status": "failure", "text": "Try again."}'
PRICES = '[m]\nprompt = 1000\ncompletion = 1000\n["mock"]\nprompt = 1000\ncompletion = 1000\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.toml").write_text(PRICES)
    (tmp_path / "counter.py").write_text(COUNTER)
    tasks = [{"id": f"n{i}", "goal": f"Answer with {i}"} for i in range(6)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return tmp_path


def detect_kind(body: dict[str, object]) -> str:
    text = json.dumps(body)
    return (
        "judge"
        if "response_format" in body
        else "lesson"
        if "do better at its next attempt" in text
        else "policy"
    )


def test_reflexion_has_one_budget_for_all_its_models(prill: Prill, folder: Path) -> None:
    with Endpoint(lambda text: GIVES_UP if "OBJECTIVE" in text else NOT_CONTENT) as endpoint:
        words = (
            "reflexion",
            "counter.py:Counter",
            "--tasks",
            "tasks.jsonl",
            "--policy",
            "react",
            "--judge",
            "modular",
        )
        words = (
            *words,
            "--judge.captioner",
            "text",
            "--attempts",
            "2",
            "-o",
            "out",
            "--model.prices",
            "p.toml",
            *endpoint.words,
        )
        prill(*words, "--budget-usd", 8.5 * CALL)
        kinds = [detect_kind(body) for body in endpoint.bodies]
        assert len(kinds) == 9, kinds
        assert kinds.count("policy") == 6 and kinds.count("judge") == 3, (
            "the judge spends the same budget"
        )
        spent = json.loads((folder / "out" / "spending.json").read_text())
        assert spent["spent_usd"] == pytest.approx(9 * CALL) and spent["held_usd"] == 0
        verdicts = list(read_verdicts(folder / "out" / "verdicts.jsonl"))
        assert {verdict.unscored for verdict in verdicts} == {None, "budget"}
        again = prill(*words, "--budget-usd", 8.5 * CALL)
        assert len(endpoint.bodies) == 9, "what was spent before counts"
        assert "of the budget of" in again.stderr
        prill(*words, "--budget-usd", 10.5 * CALL, "--retry-unscored")
        assert len(endpoint.bodies) == 11, "a higher budget grants the difference"


VOTE = """
name = "vote"
[[judges]]
name = "modular"
model = "m"
[[judges]]
name = "modular"
model = "mock"
"""


def test_judges_of_a_vote_have_one_budget(prill: Prill, folder: Path) -> None:
    write_trajectories(folder / "t.jsonl", 12)
    (folder / "vote.toml").write_text(VOTE)
    with Endpoint(lambda text: '{"thoughts": "fine", "status": "failure"}') as endpoint:
        words = (
            "score",
            "t.jsonl",
            "-o",
            "v.jsonl",
            "--judge",
            "vote.toml",
            "--judge.captioner",
            "given",
            "--model.prices",
            "p.toml",
        )
        words = (*words, "--concurrency", "1", *endpoint.words[2:])
        short = prill(*words, "--budget-usd", 4.5 * CALL)
        assert (short.returncode, len(endpoint.bodies)) == (3, 5), short.stderr
        assert {body["model"] for body in endpoint.bodies} == {"m", "mock"}
        assert "--budget-usd applies to the whole run" in short.stderr
        assert (
            prill(*words, "--budget-usd", 4.5 * CALL).returncode == 3 and len(endpoint.bodies) == 5
        )
        (folder / "v.spending.json").write_text("{")
        damaged = prill(*words, "--budget-usd", 99)
        assert damaged.returncode == 2 and "v.spending.json: cannot be read" in damaged.stderr
        # an older run: its verdicts tell, without what was lost with the unscored
        (folder / "v.spending.json").unlink()
        assert prill(*words, "--budget-usd", 4 * CALL).returncode == 3 and len(endpoint.bodies) == 5
        assert prill(*words).returncode == 0 and len(endpoint.bodies) > 5
        assert "was already spent" in prill(*words, "--budget-usd", 99).stderr
        whole = json.loads((folder / "v.spending.json").read_text())["spent_usd"]
        assert whole == pytest.approx(len(endpoint.bodies) * CALL), (
            "what was spent without a budget is in the verdicts"
        )
        assert prill(*words, "--budget-usd", 99, "--no-resume").returncode == 0
        assert json.loads((folder / "v.spending.json").read_text())["spent_usd"] == pytest.approx(
            24 * CALL
        )


def test_killed_runs_spend_no_more_than_the_budget_and_one_call(folder: Path) -> None:
    """kill -9 again and again: what the endpoint charges, answers that nobody got included."""
    write_trajectories(folder / "t.jsonl", 150)
    chance, budget = random.Random(3), 40.0
    with MockServer(latency=0.03, server_error=0.05, drop=0.05, seed=3) as server:
        words = [
            "t.jsonl",
            "-o",
            "v.jsonl",
            "--judge",
            "modular",
            "--judge.captioner",
            "given",
            "--model",
            "m",
        ]
        words += [
            "--model.base-url",
            server.base_url,
            "--model.prices",
            "p.toml",
            "--budget-usd",
            str(budget),
            "--judge.max-tokens",
            "200",
        ]
        command = [sys.executable, "-m", "prill", "score", *words, "--concurrency", "4"]
        for _ in range(2):
            known = server.stats().requests
            running = subprocess.Popen(
                command, cwd=folder, stderr=subprocess.DEVNULL, env=environment()
            )
            until = known + chance.randrange(3, 30)
            while server.stats().requests < until and running.poll() is None:
                time.sleep(0.01)
            running.kill()
            running.wait()
        last = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env=environment(), check=False
        )
        stats = server.stats()
    assert last.returncode == 3, last.stderr
    assert "budget" in {verdict.unscored for verdict in read_verdicts(folder / "v.jsonl")}
    charged = Price(1000, 1000).usd(stats.billed_prompt_tokens, stats.billed_completion_tokens)
    one_call = Price(1000, 1000).at_most(8_000, 0, 400)
    assert budget / 5 < charged <= budget + one_call, charged
