"""What others wrote reaches a terminal on the line where it belongs, without control characters."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from prill.io.store import encode
from prill.text import CONTROL
from prill.types import EvaluatorInfo, LabelRecord, Task, Trajectory, Verdict
from prill.ui.svg import el
from tests.support.commands.command import Prill

NAME = "vlm\nFAKE 100 % correct\x1b[31m\u202e\u061c\ufffe\u2028x"
COMMANDS = {
    "agree": ["v.jsonl", "l.jsonl"],
    "agree-judges": ["v.jsonl", "w.jsonl", "l.jsonl"],
    "rate": ["v.jsonl", "l.jsonl"],
    "compare": ["v.jsonl", "w.jsonl", "--junit", "j.xml"],
    "check": ["v.jsonl", "l.jsonl"],
    "show": ["--verdicts", "v.jsonl"],
    "table": ["v.jsonl"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_names_print_no_line_and_no_control_character(
    command: str, prill: Prill, tmp_path: Path
) -> None:
    ids = [f"t{i}{NAME}" for i in range(30)]
    for file, judge in (("v", NAME), ("w", NAME + "2")):
        verdicts = (
            Verdict(
                id=id, success=i % 3 == 0, reason=NAME,
                evaluator=EvaluatorInfo(judge, NAME, NAME),
            )
            for i, id in enumerate(ids)
        )  # fmt: skip
        (tmp_path / f"{file}.jsonl").write_bytes(b"".join(map(encode, verdicts)))
    labels = (
        LabelRecord(id=id, success=(i + k) % 2 == 0, source=NAME, annotator=f"{NAME}{k}", note=NAME)
        for i, id in enumerate(ids)
        for k in (0, 2)
    )
    (tmp_path / "l.jsonl").write_bytes(b"".join(map(encode, labels)))
    done = prill(command.partition("-")[0], *COMMANDS[command])
    said = done.stdout + done.stderr
    assert len(said) > 20
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028\u202e\ufffe]", said)
    assert not any(line.startswith("FAKE") for line in said.splitlines())
    if command == "compare":
        fromstring((tmp_path / "j.xml").read_text())


def test_drawings_are_xml() -> None:
    fromstring(el("svg", NAME, title=NAME))


def test_papers_print_nothing_that_a_terminal_interprets(prill: Prill, tmp_path: Path) -> None:
    run = Trajectory(id="t0", task=Task(id="t0", goal="g"), steps=())
    verdict = Verdict(id="t0", success=False, evaluator=EvaluatorInfo("j", "1"))
    (tmp_path / "t.jsonl").write_bytes(encode(run))
    (tmp_path / "v.jsonl").write_bytes(encode(verdict))
    name = "m\x1b[31m\u202e\u2028x"
    done = prill("papers", "exemplars", "t.jsonl", "--verdicts", "v.jsonl", "-o", name)
    assert r"m\x1b[31m\u202e\u2028x" in done.stdout
    assert not CONTROL.search((done.stdout + done.stderr).replace("\r", ""))
