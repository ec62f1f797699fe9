"""`prill compare` on files, as a user runs it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.io.store import encode, encode_trajectory
from prill.types import EvaluatorInfo, LabelRecord, Opinion, Task, Trajectory, Verdict

JUDGE = EvaluatorInfo("modular", "1", "m")
# The rules that Jenkins, GitLab and GitHub's reporters share, after Jenkins' xunit plugin
# (junit-10.xsd).
SCHEMA = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
 <xs:complexType name="outcome" mixed="true">
  <xs:attribute name="type" type="xs:string"/><xs:attribute name="message" type="xs:string"/>
 </xs:complexType>
 <xs:element name="testsuites"><xs:complexType>
  <xs:sequence><xs:element ref="testsuite" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
  <xs:attribute name="name" type="xs:string"/>
 </xs:complexType></xs:element>
 <xs:element name="testsuite"><xs:complexType>
  <xs:sequence><xs:element ref="testcase" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
  <xs:attribute name="name" type="xs:string" use="required"/>
  <xs:attribute name="tests" type="xs:nonNegativeInteger" use="required"/>
  <xs:attribute name="failures" type="xs:nonNegativeInteger" use="required"/>
  <xs:attribute name="errors" type="xs:nonNegativeInteger" use="required"/>
  <xs:attribute name="skipped" type="xs:nonNegativeInteger"/>
 </xs:complexType></xs:element>
 <xs:element name="testcase"><xs:complexType>
  <xs:choice minOccurs="0" maxOccurs="unbounded">
   <xs:element name="skipped" type="outcome"/><xs:element name="error" type="outcome"/>
   <xs:element name="failure" type="outcome"/><xs:element name="system-out" type="xs:string"/>
  </xs:choice>
  <xs:attribute name="name" type="xs:string" use="required"/>
  <xs:attribute name="classname" type="xs:string" use="required"/>
  <xs:attribute name="time" type="xs:decimal"/>
 </xs:complexType></xs:element>
</xs:schema>"""
Agent = Callable[..., str]


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    """Writes an agent's verdicts, runs and labels; gives the verdict file. Runs of task `t3` are
    `b-3-0`, `b-3-1`.
    """

    def write(name: str, *tasks: str, judge: EvaluatorInfo = JUDGE, reason: str = "") -> str:
        """Outcomes of each task's runs: 1, 0, or ? for unscored."""
        runs = {f"{name}-{i}-{k}": o for i, told in enumerate(tasks) for k, o in enumerate(told)}
        verdicts = [
            Verdict(id=id, unscored="timeout", evaluator=judge)
            if outcome == "?"
            else Verdict(id=id, success=outcome == "1", reason=reason, evaluator=judge)
            for id, outcome in runs.items()
        ]
        trajectories = [
            Trajectory(id=id, agent=name, task=Task(id=f"t{id.split('-')[1]}", goal="g"))
            for id in runs
        ]
        labels = [LabelRecord(id=id, success=outcome == "1") for id, outcome in runs.items()]
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(map(encode, verdicts)))
        (tmp_path / f"{name}-labels.jsonl").write_bytes(b"".join(map(encode, labels)))
        (tmp_path / f"{name}-runs.jsonl").write_bytes(
            b"".join(encode_trajectory(run, tmp_path) for run in trajectories)
        )
        return str(tmp_path / f"{name}.jsonl")

    return write


def runs(*verdicts: str) -> list[str]:
    return [path.replace(".jsonl", "-runs.jsonl") for path in verdicts]


def test_page_tells_difference_changes_and_unscored(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    a = agent("a", *["11"] * 4, "10", "00", "1?", "11")
    b = agent("b", "00", "11", "11", "11", "10", "11", "?1", "??", "11", reason="Saw\n\x1b[31mred")
    assert main(["compare", a, b, "--trajectories", *runs(a, b), "--report", "r.html"]) == 0
    page = capsys.readouterr().out
    shown = {line[:29].strip(): line[29:].split() for line in page.splitlines()}
    assert shown["A, success"][0] == f"{5.5 / 7:.3f}"
    assert shown["B - A, by verdicts"][0] == "0.000"
    assert "Tasks: 7 with scored runs of both, 1 of A alone, 1 of B alone" in page
    assert "Unscored, B: 3 of 18 (timeout 3)" in page
    assert "from -0.188 to 0.062" in page  # t6: 0.5 or 1 less 1 or 0.5; t7: 0 or 1 less 1
    assert "(1 tasks to failure, 1 to success)" in page
    lines = page.splitlines()
    assert lines[lines.index("Changed to failure (1)") + 1].strip() == "t0"
    assert "    B b-0-0: failure. Saw ?[31mred r.html#t=b-0-0" in lines
    assert "\x1b" not in page


@pytest.mark.parametrize(
    ("a", "b", "code", "word"),
    [
        ("1", "1", 0, "pass"),
        ("1", "0", 1, "fail"),
        ("10", "01", 6, "inconclusive"),
        ("10", "00", 1, "fail"),
    ],
)
def test_exit_code_is_the_decision_of_the_interval(
    agent: Agent, tmp_path: Path, a: str, b: str, code: int, word: str
) -> None:
    files = [agent(name, *(told[i % len(told)] for i in range(60))) for name, told in
             (("a", a), ("b", b))]  # fmt: skip
    out = tmp_path / "c.xml"
    command = ["compare", *files, "--trajectories", *runs(*files), "--require", "B >= A - 0.1"]
    assert main([*command, "--junit", str(out), "--markdown", str(tmp_path / "c.md")]) == code
    suite = ET.parse(out).getroot().find("testsuite")
    assert suite is not None
    failed = {"pass": "0 0", "fail": "1 0", "inconclusive": "0 1"}[word]
    assert f"{suite.get('failures')} {suite.get('errors')}" == failed
    assert (tmp_path / "c.md").read_text().startswith(f"## prill compare: {word}\n")


def test_unscored_runs_are_no_failures_and_can_be_asked_for_the_worst(agent: Agent) -> None:
    a, b = agent("a", *["1"] * 60), agent("b", *["1"] * 40, *["?"] * 20)
    config = prill.CompareConfig(a=a, b=b, trajectories=runs(a, b), require="B >= A - 0.1")
    result = prill.compare(config)
    assert (result.main.rate_b, result.decision) == (1, "pass")
    assert "with unscored = bounds the requirement would be: inconclusive" in str(result)
    worst = prill.compare(
        prill.CompareConfig(
            a=a, b=b, trajectories=runs(a, b), require="B >= A - 0.1", unscored="bounds"
        )
    )
    assert worst.decision == "inconclusive"
    assert worst.main.bounds == (pytest.approx(-1 / 3), 0)
    missing = Path(b).read_text().splitlines()[:40]
    Path(b).write_text("\n".join(missing) + "\n")
    assert dict(prill.compare(config).b.unscored) == {"no verdict": 20}


def test_junit_is_what_continuous_integration_reads(agent: Agent, tmp_path: Path) -> None:
    etree = pytest.importorskip("lxml.etree")
    a = agent("a", "11", "1", "1", *["1"] * 30)
    b = agent("b", "00", "?", "1", *["1"] * 30, reason='<b>&"\x00\x0b]]></failure>\ufffe')
    for rule in ([], ["--require", "B >= A"], ["--require", "B >= A + 0.9"]):
        out = tmp_path / "c.xml"
        main(["compare", a, b, "--trajectories", *runs(a, b), "--junit", str(out), *rule])
        document = etree.parse(str(out))
        etree.XMLSchema(etree.fromstring(SCHEMA)).assertValid(document)
        for suite in document.getroot():
            for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
                assert int(suite.get(name)) == len(suite.findall(f"testcase/{tag}"))
            assert int(suite.get("tests")) == len(suite)
    told = {case.get("name"): case for case in document.getroot()[-1]}
    assert told["t0"].findtext("system-out").startswith("to failure:\nA a-0-0: success")
    assert "timeout" in told["t1"].find("skipped").get("message")
    assert not len(told["t2"])


def test_markdown_holds_no_markup_of_others(agent: Agent, tmp_path: Path) -> None:
    a = agent("a", "1", "1")
    b = agent("b", "0", "1", reason="<img src=x> [click](http://x) | ``code``")
    out = tmp_path / "c.md"
    main(["compare", a, b, "--trajectories", *runs(a, b), "--markdown", str(out), "--report", "p"])
    head, block = out.read_text().split("```text\n")  # a code block, in which nothing is markup
    assert head == "## prill compare: difference\n\n"
    assert "<img" in block and "p#t=b-0-0" in block and block.endswith("\n```\n")


def test_json_and_python_say_the_same(agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = agent("a", *["10"] * 30), agent("b", *["11"] * 30)
    assert main(["compare", a, b, "--trajectories", *runs(a, b), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    result = prill.compare(prill.CompareConfig(a=a, b=b, trajectories=runs(a, b)))
    assert told["by_verdicts"]["difference"]["low"] == result.main.difference.low
    assert told["tasks"][0]["change"] == "mixed"
    assert result.table().to_rows()[0] == {
        **{"task": "t0", "change": "mixed", "runs_a": 2, "runs_b": 2, "rate_a": 0.5, "rate_b": 1.0}
    }
    assert "B - A, by verdicts" in result._repr_html_()


def test_repeated_verdicts_are_the_judges_noise(agent: Agent, tmp_path: Path) -> None:
    a, b = agent("a", *["11", "00"] * 5), agent("b", *["11", "00"] * 5)
    again = agent("a2", *["01", "00"] * 5)
    Path(again).write_text(Path(again).read_text().replace('"a2-', '"a-'))
    config = prill.CompareConfig(a=a, b=b, trajectories=runs(a, b), a_again=[again])
    result = prill.compare(config)
    # 5 of 20 runs judged both ways: 5 * 0.5 / 20
    assert result.main.noise.judge == pytest.approx(0.125)
    assert result.main.rate_a == pytest.approx(0.375)
    other = agent("a3", "1", judge=EvaluatorInfo("modular", "1", "another"))
    with pytest.raises(
        UsageError, match="can only be measured on repeated verdicts of the same judge"
    ):
        prill.compare(prill.CompareConfig(a=a, b=b, trajectories=runs(a, b), a_again=[other]))


def test_labels_show_what_of_the_difference_is_the_judges(agent: Agent) -> None:
    a, b = agent("a", *["1", "0"] * 20), agent("b", *["1", "0"] * 20)
    labels = [path.replace(".jsonl", "-labels.jsonl") for path in (a, b)]
    # The judge takes every run of B for a success.
    Path(b).write_text(Path(b).read_text().replace('"success":false', '"success":true'))
    config = prill.CompareConfig(a=a, b=b, trajectories=runs(a, b), labels=labels)
    result = prill.compare(config)
    assert result.main.difference.value == pytest.approx(0.5)
    assert result.by_labels is not None and result.judge_error is not None
    assert result.by_labels.difference.value == 0
    assert result.judge_error.value == pytest.approx(0.5)
    assert "Warning: the judge's error rates differ between A and B" in str(result)
    by_labels = prill.compare(
        prill.CompareConfig(
            a=a, b=b, trajectories=runs(a, b), labels=labels, outcome="labels", require="B > A"
        )
    )
    assert by_labels.main.difference.value == 0
    assert by_labels.decision == "inconclusive"


def test_what_cannot_be_compared_is_refused(agent: Agent, tmp_path: Path) -> None:
    a, b = agent("a", "1"), agent("b", "1")
    with pytest.raises(UsageError, match="trajectories show which runs share a task"):
        prill.compare(prill.CompareConfig(a=a, b=b))
    with pytest.raises(UsageError, match="this is also an input"):
        prill.compare(prill.CompareConfig(a=a, b=b, trajectories=runs(a, b), junit=a))
    with pytest.raises(UsageError, match="expected one file, or two"):
        prill.CompareConfig(a=a, b=b, trajectories=["x", "y", "z"]).check()
    out = str(tmp_path / "c.md")
    for _ in range(2):  # it is replaced
        prill.compare(prill.CompareConfig(a=a, b=b, trajectories=runs(a, b), markdown=out))
    with pytest.raises(UsageError, match="contains a comparison, not a JUnit report"):
        prill.compare(prill.CompareConfig(a=a, b=b, trajectories=runs(a, b), junit=out))


def test_votes_of_one_judge_show_its_noise(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"name": "modular", "captioner": "text"}
    judge = prill.judge(
        "vote", judges=[one], samples=3, model="gpt-4o", base_url="http://127.0.0.1:9/v1"
    ).info
    a, b = agent("a", "11", "00", judge=judge), agent("b", "11", "11", judge=judge)
    votes = {"a-0-0": "110", "b-1-1": "1?0"}
    for path in (a, b):
        made = []
        for verdict in prill.read_verdicts(path):
            told = votes.get(verdict.id, "111" if verdict.success else "000")
            opinions = tuple(
                Opinion(judge="modular", success={"1": True, "0": False}.get(vote)) for vote in told
            )
            made.append(replace(verdict, opinions=opinions))
        Path(path).write_bytes(b"".join(map(encode, made)))
    assert main(["compare", a, b, "--trajectories", *runs(a, b)]) == 0
    page = capsys.readouterr().out
    # sums of squares 2/3 and 1/2, over 7 runs of three votes and one of two: 15 degrees of freedom
    assert "Variance of a vote: the judge 0.0778 (8 runs with several votes)" in page
    assert "Share in the variance of B - A by mean votes: the judge " in page
    # the difference itself is by verdicts
    assert "B - A, by verdicts" in page and "A, success                     0.500" in page
    # votes of different judges are not noise of one
    other = EvaluatorInfo(
        "vote", "1", params={"judges": [{"name": "modular"}, {"name": "vlm"}, {"name": "steps"}]}
    )
    for path in (a, b):
        made = [replace(verdict, evaluator=other) for verdict in prill.read_verdicts(path)]
        Path(path).write_bytes(b"".join(map(encode, made)))
    assert main(["compare", a, b, "--trajectories", *runs(a, b)]) == 0
    assert "Variance of a vote" not in capsys.readouterr().out


def test_plot_shows_interval_and_requirement(agent: Agent, tmp_path: Path) -> None:
    a, b = agent("a", *["1", "0"] * 10), agent("b", *["1", "?"] * 10)
    out = tmp_path / "c.svg"
    command = ["compare", a, b, "--trajectories", *runs(a, b), "--require", "B >= A - 0.05"]
    main([*command, "--plot", str(out)])
    drawn = ET.parse(out).getroot()
    words = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"B - A, by verdicts", "-0.05", "+0.000"} <= words
