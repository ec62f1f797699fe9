"""`prill filter` as a user meets it: a folder of rows with manifest and page, figures, and one
clear error for bad input.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import prill as package
from tests.support.commands.command import Prill

PAGE = "[1] RootWebArea 'Shop'\n\t[7] link 'Cart'\n\t[9] textbox 'Search'"
OWN = """
from prill.protocols import LanguageModel, Message

class Terse:
    def __init__(self, model: LanguageModel, sign: str = "."):
        self.sign = sign
    def reset(self, task): ...
    async def act(self, observation): ...
    def demonstrate(self, trajectory, index):
        return [Message("user", (trajectory.task.goal,))], trajectory.steps[index].action.kind + self.sign
"""  # noqa: E501
JUDGE = {"name": "vlm", "version": "1", "model": "m"}


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def trajectory(
    id: str, task: str = "k", *, number: int = 7, image: str | None = None
) -> dict[str, Any]:
    state = {"text": PAGE, **({"screenshot": image} if image else {})}
    steps = [
        {
            "observation": state,
            "action": {"kind": "click", "text": f"click [{number}]", "target": f"[{number}]"},
        },
        {"observation": state, "action": {"kind": "stop", "text": "stop [4]", "value": "4"}},
    ]
    return {
        "id": id,
        "task": {"id": task, "goal": "How many <b>things</b>?", "platform": "web", "site": "shop"},
        "steps": steps,
    }


def said(id: str, success: bool | None, score: float | None = None) -> dict[str, Any]:
    unscored = "timeout" if success is None else None
    return {"id": id, "success": success, "score": score, "unscored": unscored, "evaluator": JUDGE}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A good attempt, two bad ones and one that is unscored, with verdicts in v.jsonl and labels in
    l.jsonl.
    """
    attempts = [
        trajectory("a"),
        trajectory("b", number=9),
        trajectory("c", "other"),
        trajectory("d"),
    ]
    write(
        tmp_path / "v.jsonl",
        said("a", True, 0.9),
        said("b", False, 0.2),
        said("c", True, 0.6),
        said("d", None),
    )
    write(tmp_path / "l.jsonl", *({"id": id, "success": id == "a"} for id in "abcd"))
    return write(tmp_path / "t.jsonl", *attempts)


def test_folder_has_rows_manifest_and_report(prill: Prill, runs: Path, tmp_path: Path) -> None:
    done = prill("filter", runs, "--verdicts", "v.jsonl", "-o", "rows", "--labels", "l.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "4 of 8 steps kept, of 2 of 4 attempts",
        "Without a row, because there was no verdict: timeout 1",
        (
            "By the labels, 1 of 2 labelled attempts that were kept truly succeeded: 0.500 [0.095, "
            "0.905]"
        ),
        "  lost      2  judged a failure",
        "  lost      2  unscored: timeout",
        "4 sft rows -> rows",
    ]
    assert [(row["trajectory"], row["step"]) for row in lines(tmp_path / "rows/sft.jsonl")] == [
        ("a", 0), ("a", 1), ("c", 0), ("c", 1),
    ]  # fmt: skip
    manifest = json.loads((tmp_path / "rows/manifest.json").read_text())
    assert sorted(manifest["files"]) == sorted(path.name for path in (tmp_path / "rows").iterdir())
    assert [Path(file["path"]).name for file in manifest["inputs"]] == [
        "t.jsonl",
        "v.jsonl",
        "l.jsonl",
    ]
    assert (manifest["unscored"], manifest["steps_kept"], manifest["judge"]["name"]) == (
        {"timeout": 1},
        4,
        "vlm",
    )
    report = (tmp_path / "rows/report.md").read_text()
    assert "<b>things" not in report and "| judged a failure | 2 |" in report


def test_policy_gives_prompt_and_language(prill: Prill, runs: Path, tmp_path: Path) -> None:
    words = ("--policy", "react", "--no-policy.reasoning")
    assert prill("filter", runs, "--verdicts", "v.jsonl", "-o", "rows", *words).returncode == 0
    first, last, *_ = lines(tmp_path / "rows/sft.jsonl")
    assert [row["completion"][0]["content"] for row in (first, last)] == [
        "```click [7]```",
        "```stop [4]```",
    ]
    assert "OBSERVATION:" in first["prompt"][-1]["content"]
    assert first["prompt"][2]["role"] == "assistant", "its worked examples"
    policy = json.loads((tmp_path / "rows/manifest.json").read_text())["policy"]
    assert (policy["name"], policy["options"], list(policy["prompts"])) == (
        "react",
        {"reasoning": False},
        ["web"],
    )
    refused = prill(
        "filter",
        runs,
        "--verdicts",
        "v.jsonl",
        "-o",
        "other",
        "--policy",
        "replay",
        "--policy.trajectories=[]",
    )
    assert (
        refused.returncode,
        "policies with this method: react, screen, cogagent" in refused.stderr,
    ) == (2, True)


def test_own_policy_teaches_by_name(prill: Prill, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    words = ("--policy", "own.py:Terse", "--policy.sign", "!")
    assert prill("filter", runs, "--verdicts", "v.jsonl", "-o", "rows", *words).returncode == 0
    row = lines(tmp_path / "rows/sft.jsonl")[0]
    assert row["prompt"] == [{"role": "user", "content": "How many <b>things</b>?"}]
    assert row["completion"] == [{"role": "assistant", "content": "click!"}]


def test_python_does_what_the_command_does(prill: Prill, runs: Path, tmp_path: Path) -> None:
    said = prill(
        "filter",
        runs,
        "--verdicts",
        "v.jsonl",
        "-o",
        "rows",
        "--labels",
        "l.jsonl",
        "--policy.history",
        "2",
    )
    config = package.FilterConfig(
        trajectories=[runs],
        verdicts=["v.jsonl"],
        output="again",
        labels="l.jsonl",
        policy={"name": "plain", "history": 2},
    )
    result = package.filter(config)
    assert str(result).splitlines()[:3] == said.stdout.splitlines()[:3]
    assert (tmp_path / "again/sft.jsonl").read_bytes() == (tmp_path / "rows/sft.jsonl").read_bytes()
    about = [
        json.loads((tmp_path / folder / "manifest.json").read_text())
        for folder in ("rows", "again")
    ]
    assert about[0] == about[1] and about[0]["policy"]["options"] == {"history": 2}
    assert list(result.to_pandas()["why"]).count("judged a failure") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--threshold", "0.95"],
            "no step is left of 8 in 4 attempts: score below 0.95 6, unscored: timeout 2",
        ),
        (
            ["--precision", "0.9"],
            "needs a calibration of the judge, which `prill calibrate` makes (--calibration)",
        ),
        (["--level", "step"], "has no rewards of steps"),
        (["--rows", "sft,ppo"], "rows"),
        (
            ["--rows", "kto", "--keep-all"],
            "kto needs steps that the judge kept and steps that it rejected; got 6 and 0",
        ),
        (
            ["--rows", "dpo", "--per-task", "1", "--seed", "3", "--policy", "cogagent"],
            "no pair of a kept and a rejected step",
        ),
        (
            ["--policy", "cogagent"],
            "no kept step gives a row; steps without a row: nothing to show 4",
        ),
        (["--format", "trll"], "did you mean 'trl'?"),
        (["--policy.histroy", "2"], "did you mean '--policy.history'?"),
    ],
)
def test_bad_input_is_one_clear_error(
    prill: Prill, runs: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    done = prill("filter", runs, "--verdicts", "v.jsonl", "-o", "rows", *words)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "rows").exists() and not list(tmp_path.glob(".*part")), (
        "nothing half done is left"
    )


def test_broken_lines_cost_themselves_only(prill: Prill, runs: Path, tmp_path: Path) -> None:
    with runs.open("a") as file:
        file.write("{broken\n")
    done = prill("filter", runs, "--verdicts", "v.jsonl", "-o", "rows")
    assert (done.returncode, len(lines(tmp_path / "rows/sft.jsonl"))) == (3, 4)
    assert "t.jsonl:5" in done.stderr
