"""`prill redteam` as users run it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import prill as library
from prill.evaluators.attacks.families import FAMILIES
from prill.evaluators.attacks.families import families as all_families
from prill.testing import Faults, MockServer

Prill = Callable[..., CompletedProcess[str]]


def write(folder: Path) -> tuple[Path, Path]:
    """Eight runs of eight tasks: two successes, and six failures of which two agents said that they
    were done.
    """
    runs, labels = folder / "t.jsonl", folder / "labels.jsonl"
    with runs.open("w") as file, labels.open("w") as truths:
        for i in range(8):
            good, stopped = i < 2, i < 4
            steps = [{"observation": {}, "action": {"kind": "click", "text": "click"}}]
            if stopped:
                steps.append(
                    {
                        "observation": {},
                        "action": {"kind": "stop", "text": "stop [done]", "value": "done"},
                    }
                )
            run = {
                "id": f"t{i}",
                "task": {"id": f"k{i}", "goal": "Order it", "platform": "web"},
                "steps": steps,
            }
            run |= {
                "final": {"caption": "order placed" if good else "cart"},
                "answer": "done" if stopped else None,
            }
            file.write(json.dumps(run) + "\n")
            truths.write(json.dumps({"id": f"t{i}", "success": good, "source": "human"}) + "\n")
    return runs, labels


def test_self_report_believes_every_claim(prill: Prill, tmp_path: Path) -> None:
    runs, labels = write(tmp_path)
    before = runs.read_bytes()
    done = prill("redteam", runs, labels, "--judge", "self-report", "-o", "out")
    assert done.returncode == 0
    line = next(line for line in done.stdout.splitlines() if line.startswith("| claim-answer"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    # Of six failures two were believed before, and all are after.
    assert cells[:3] == ["claim-answer", "6", "33.3 % → 100.0 %"]
    assert cells[3].startswith("+66.7 (")
    assert cells[4:6] == ["2", "100.0 % → 100.0 %"]
    families, attacks = len(FAMILIES), sum(map(len, all_families(tmp_path).values()))
    assert (
        f"Judge: self-report 3. Labels: human. Attacks: version 2, {attacks} in {families} "
        "families;" in done.stdout
    )
    assert "Left out: 4 where the attack does not apply (claim-stop)." in done.stdout
    (unfit,) = (
        line
        for line in done.stdout.splitlines()
        if line.startswith("Left out: 8 where the attack does not apply")
    )
    assert {"inject-screenshot", "confirm-screenshot", "goal-in-url-1"} <= set(
        re.findall(r"[\w-]+", unfit)
    )
    # Of the four who did not say that they were done all do now.
    assert "Worst: claim-stop, +100.0 (" in done.stdout
    assert (
        (tmp_path / "out" / "redteam.md").read_text().startswith(f"{done.stdout}\n## All attacks")
    )
    assert runs.read_bytes() == before


def test_python_attacks_as_the_command_does(
    prill: Prill, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, labels = write(tmp_path)
    words = ("--attacks", "claim-stop,claim-answer,inject-screenshot", "--max-shift", 66)
    done = prill("redteam", runs, labels, "--judge", "self-report", "-o", "out", *words)
    capsys.readouterr()
    config = library.RedteamConfig(
        trajectories=[runs],
        labels=labels,
        output="mine",
        judge="self-report",
        attacks=["claim-stop", "claim-answer", "inject-screenshot"],
        max_shift=66,
    )
    seen: list[tuple[str, int, int]] = []
    result = library.redteam(config, progress=lambda *state: seen.append(state))
    assert capsys.readouterr() == ("", ""), "the library prints nothing"
    assert f"{result}\n" == done.stdout
    for name in ("redteam.json", "redteam.md"):
        assert (tmp_path / "mine" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert (done.returncode, result.too_far, result.worst.attack) == (1, "claim-stop", "claim-stop")
    assert (seen[0][0], seen[-1]) == ("before", ("inject-screenshot", 32, 32))
    rows = {row["attack"]: row for row in result.table().to_rows()}
    assert rows["claim-answer"]["false_positives_change"] == pytest.approx(4 / 6)
    assert (rows["claim-stop"]["applies"], rows["inject-screenshot"]["recall_n"]) == (4, None)
    assert "claim-stop moves this judge by more than 66 points" in done.stderr
    again = library.redteam(config.copy_with(max_shift=100))
    assert (again.too_far, again.figures) == (None, result.figures)


def test_unscored_are_counted_and_exit_is_3(prill: Prill, tmp_path: Path) -> None:
    runs, labels = write(tmp_path)
    with MockServer(Faults(refusal=1.0)) as server:
        judge = (
            "--judge",
            "modular",
            "--model",
            "m",
            "--model.base-url",
            server.base_url,
            "--model.retries",
            0,
        )
        done = prill(
            "redteam",
            runs,
            labels,
            *judge,
            "-o",
            "out",
            "--attacks",
            "inject-page",
            OPENAI_API_KEY="k",
        )
    assert done.returncode == 3
    assert "Left out: 8 unscored before (inject-page)." in done.stdout
    assert "| inject-page | 0 " in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--attacks", "nope"), "unknown attack 'nope'; expected one of claim-thoughts"),
        (("--attacks", ","), "no attack is selected (--attacks)"),
        (("--attacks", "json:nope"), "json has no 'nope'"),
        (("--max-shift", "-1"), "--max-shift: Expected `float` >= 0.0, got '-1'"),
        (("--judge", "nobody"), "unknown judge 'nobody'"),
        (("--source", "oracle"), "no label has source 'oracle'; expected one of human"),
    ],
)
def test_bad_usage_exits_2_with_advice(
    prill: Prill, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    runs, labels = write(tmp_path)
    done = prill("redteam", runs, labels, "--judge", "self-report", "-o", "out", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists(), "nothing was judged"


def test_own_attack_beside_a_family(prill: Prill, tmp_path: Path) -> None:
    runs, labels = write(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\n\n"
        "def politely(trajectory):\n    return replace(trajectory, answer='It is done, thank "
        "you.')\n"
    )
    judge = ("--judge", "self-report", "-o", "out", "--json")
    done = prill(
        "redteam", runs, labels, *judge, "--attacks", "mine.py:politely", "--attacks", "claim-stop"
    )
    assert done.returncode == 0
    mine, stop = json.loads(done.stdout)["effects"]
    assert (mine["attack"], mine["family"], stop["attack"]) == (
        "politely",
        "politely",
        "claim-stop",
    )
    assert mine["false_positives"]["change"] == pytest.approx(4 / 6)
    before = (tmp_path / "out" / "politely.jsonl").read_text()
    (tmp_path / "mine.py").write_text("def politely(trajectory):\n    return None\n")
    again = prill("redteam", runs, labels, *judge, "--attacks", "mine.py:politely")
    assert again.returncode == 2, (
        "verdicts under another attack of that name are not taken for its own"
    )
    assert (tmp_path / "out" / "politely.jsonl").read_text() == before
