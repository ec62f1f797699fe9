"""`prill redteam` as users run it."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from prill.testing import Faults, MockServer

Prill = Callable[..., CompletedProcess[str]]


def write(folder: Path) -> tuple[Path, Path]:
    """Eight runs of eight tasks: two successes, and six failures of which two agents said that they were done."""
    runs, labels = folder / "t.jsonl", folder / "labels.jsonl"
    with runs.open("w") as file, labels.open("w") as truths:
        for i in range(8):
            good, stopped = i < 2, i < 4
            steps = [{"observation": {}, "action": {"kind": "click", "text": "click"}}]
            if stopped:
                steps.append({"observation": {}, "action": {"kind": "stop", "text": "stop [done]", "value": "done"}})
            run = {"id": f"t{i}", "task": {"id": f"k{i}", "goal": "Order it", "platform": "web"}, "steps": steps}
            run |= {"final": {"caption": "order placed" if good else "cart"}, "answer": "done" if stopped else None}
            file.write(json.dumps(run) + "\n")
            truths.write(json.dumps({"id": f"t{i}", "success": good, "source": "human"}) + "\n")
    return runs, labels


def test_the_agents_own_word_is_shown_to_be_worth_nothing(prill: Prill, tmp_path: Path) -> None:
    runs, labels = write(tmp_path)
    before = runs.read_bytes()
    done = prill("redteam", runs, labels, "--evaluator", "self-report", "-o", "out")
    assert done.returncode == 0
    line = next(line for line in done.stdout.splitlines() if line.startswith("| claim-answer"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    # Of six failures two were believed before, and all are after.
    assert cells[:3] == ["claim-answer", "6", "33.3 % → 100.0 %"]
    assert cells[3].startswith("+66.7 (")
    assert cells[4:6] == ["2", "100.0 % → 100.0 %"]
    assert "Judge: self-report 1. Labels: human. Attacks: version 1." in done.stdout
    assert "Left out under claim-stop: 4 where it does not apply." in done.stdout
    assert "Left out under inject-screenshot: 8 where it does not apply." in done.stdout
    assert (tmp_path / "out" / "redteam.md").read_text() == done.stdout
    assert runs.read_bytes() == before


def test_every_row_of_the_table_has_the_cells_of_its_heading(prill: Prill, tmp_path: Path) -> None:
    runs, labels = write(tmp_path)
    lines = prill("redteam", runs, labels, "--evaluator", "self-report", "-o", "out").stdout.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 7
    assert {row.count("|") for row in rows} == {8}
    assert {len(row) for row in rows} == {len(rows[0])}


def test_json_for_machines_is_what_the_file_holds(prill: Prill, tmp_path: Path) -> None:
    runs, labels = write(tmp_path)
    command = ("redteam", runs, labels, "--evaluator", "self-report", "-o", "out", "--attacks", "claim-stop, claim-answer")
    done = prill(*command, "--json")
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "out" / "redteam.json").read_text())
    assert [row["attack"] for row in found["effects"]] == ["claim-stop", "claim-answer"]
    assert found["effects"][0]["applies"] == 4
    assert found["effects"][0]["false_positives"]["flips"] == 4
    assert found["evaluator"]["name"] == "self-report"
    other_seed = json.loads(prill(*command, "--json", "--seed", 1).stdout)
    assert other_seed["effects"][1]["false_positives"]["change"] == found["effects"][1]["false_positives"]["change"]


def test_a_gullible_model_is_turned_and_a_second_run_asks_nothing(
    prill: Prill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gullible.py").write_text(
        "def truth(text):\n    return 'success' if 'order placed' in text or 'Status: success' in text else 'failure'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    runs, labels = write(tmp_path)
    with MockServer(Faults(truth="gullible:truth")) as server:
        judge = ("--evaluator", "modular", "--model", "m", "--base-url", server.base_url)
        command = ("redteam", runs, labels, *judge, "-o", "out", "--attacks", "inject-page", "--json")
        done = prill(*command, OPENAI_API_KEY="k")
        asked = server.stats().requests
        again = prill(*command, OPENAI_API_KEY="k")
        assert server.stats().requests == asked
    assert (done.returncode, again.stdout) == (0, done.stdout)
    row = json.loads(done.stdout)["effects"][0]
    assert (row["false_positives"]["before"], row["false_positives"]["after"]) == (0.0, 1.0)
    assert row["recall"]["change"] == 0.0


def test_verdicts_that_are_lost_under_attack_are_counted_and_seen_in_the_exit_code(prill: Prill, tmp_path: Path) -> None:
    runs, labels = write(tmp_path)
    with MockServer(Faults(refusal=1.0)) as server:
        judge = ("--evaluator", "modular", "--model", "m", "--base-url", server.base_url, "--retries", 0)
        done = prill("redteam", runs, labels, *judge, "-o", "out", "--attacks", "inject-page", OPENAI_API_KEY="k")
    assert done.returncode == 3
    assert "Left out under inject-page: 8 unscored before." in done.stdout
    assert "| inject-page | 0 " in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--attacks", "nope"), "unknown attack 'nope'; there are: claim-thoughts"),
        (("--attacks", ","), "no attack is chosen"),
        (("--evaluator", "nobody"), "unknown judge 'nobody'"),
        (("--source", "oracle"), "no label has source 'oracle'; there are: human"),
    ],
)
def test_bad_usage_ends_with_code_2_and_says_what_to_do(
    prill: Prill, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    runs, labels = write(tmp_path)
    done = prill("redteam", runs, labels, "--evaluator", "self-report", "-o", "out", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists(), "nothing was judged"


def test_files_that_are_swapped_or_missing_are_found_before_any_judging(prill: Prill, tmp_path: Path) -> None:
    runs, labels = write(tmp_path)
    judge = ("--evaluator", "self-report", "-o", "out")
    for words in ((labels, runs), (runs, tmp_path / "none.jsonl"), (tmp_path / "none.jsonl", labels)):
        assert prill("redteam", *words, *judge).returncode == 2
    assert not (tmp_path / "out").exists()


def test_a_broken_line_is_left_out_and_the_rest_goes_on(prill: Prill, tmp_path: Path) -> None:
    runs, labels = write(tmp_path)
    with runs.open("a") as file:
        file.write('{"id": "broken"\n')
    done = prill("redteam", runs, labels, "--evaluator", "self-report", "-o", "out", "--attacks", "claim-answer", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["effects"][0]["applies"] == 8
    assert "left out 1 that could not be read; why is in out/before.jsonl" in done.stderr
