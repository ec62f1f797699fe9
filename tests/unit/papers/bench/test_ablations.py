"""Tables of ablations: every row can be played, and one command plays all rows into one table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prill.cli import main
from prill.io.store import iter_trajectories, write_trajectories
from prill.papers.bench.papers import paper_names, read_paper
from prill.papers.mind2web.format import load
from prill.policies.registry import PolicyConfig, make_policy
from prill.testing import MockServer, ScriptedModel
from prill.types import Trajectory
from tests.unit.papers.mind2web.test_format import task

TABLES = [(name, table) for name in paper_names() for table in read_paper(name).ablations]


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    (tmp_path / "test.json").write_text(json.dumps([task("one"), task("two")]))
    turns = [item for item in load(tmp_path / "test.json") if isinstance(item, Trajectory)]
    write_trajectories(tmp_path / "gold.jsonl", turns)
    return tmp_path / "gold.jsonl"


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_every_row_is_an_agent_that_can_be_made(name: str, table: str) -> None:
    paper = read_paper(name)
    columns = {column.name for column in paper.columns}
    rows = paper.ablations[table].rows
    assert len({row.name for row in rows}) == len(rows) > 1
    for row in rows:
        policy = row.policy or paper.agents[0]
        assert row.options.keys() <= PolicyConfig.options_for({"name": policy}).keys()
        own = {"memory": "x"} if policy == "synapse-mind2web" else {}
        if not own:
            make_policy(policy, model=ScriptedModel([]), **row.options)
        assert row.theirs is None or row.theirs in columns


def test_one_command_plays_all_rows_and_resumes(
    gold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRILL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    out = tmp_path / "out"
    words = ["papers", "bench", "mind2web", "--recordings", f"cross-task={gold}", "--model", "mock"]
    words += ["--policy", "mindact", "--ablation", "memories", "-o", str(out)]
    with MockServer() as server:
        words += ["--model.base-url", server.base_url]
        assert main(words) == 0, capsys.readouterr().err
        played = {path: path.read_bytes() for path in out.glob("*/episodes/trajectories.jsonl")}
        assert main(words) == 0
    assert sorted(path.parts[-3] for path in played) == [
        *("mindact", "mindact-fixed", "self-map", "synapse")
    ]
    assert all(path.read_bytes() == data for path, data in played.items()), "nothing plays twice"
    text = (out / "results.md").read_text()
    assert text in capsys.readouterr().out
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        *("| MindAct", "| MindAct + Fixed", "| Synapse", "| Self-MAP")
    ], "figures of conversations are not beside single tasks"
    assert "history fixed" in lines[3]
    assert list(json.loads((out / "results.json").read_text())) == [
        *("MindAct", "MindAct + Fixed", "Synapse", "Self-MAP")
    ]
    assert len(list(iter_trajectories(next(iter(played))))) == 2
