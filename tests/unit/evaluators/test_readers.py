"""Replies in each protocol's grammar, read by the authors' rule and by prill's.

A table has the line with the verdict, the authors' label (F failure, S success, - none), and
prill's reading (? unscored). Each line stands in several contexts, which change neither.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from prill.errors import UnparsableError
from prill.evaluators.readers import READERS, Grade, VerdictReader, read_grade, read_key_points
from prill.protocols import Reply
from prill.types import Usage
from tests.support.paths import ROOT

WORDS = {"S": True, "F": False, "-": None, "?": None}

# WebJudge, AgentTrek and WebJudge's general mode
STATUS = """
Status: success                        S S
Status: failure                        F F
Status: "success"                      S S
Status: FAILURE                        F F
Status: SUCCESS.                       S S
status: success                        S S
Status: **success**                    S S
**Status:** success                    S S
**Status**: failure                    F F
- Status: success                      S S
Status: unsuccessful                   S ?
Status: successful                     S ?
Status: not a success                  S ?
Status: failure (no success)           S ?
Status: partial success                S ?
Status: incomplete                     F ?
Status:                                F ?
Status - success                       F ?
The run was a success.                 F ?
success                                F ?
"""
STATUS_CONTEXTS = (
    "Thoughts: Every key point is met.\n{}",
    "Thoughts: It first looked like a failure, then like a success, and ended well.\n\n{}\n",
    "Thoughts:\n1. The filter is set.\n2. The results are shown.\n{}\n\n",
    "## Evaluation\n\n**Thoughts**: The cart holds the tea.\n\n{}",
)
# AgentEvalRefine's scripts
PAPER = """
Status: success                        S S
Status: failure                        F F
Status: "success"                      S S
Status: Success                        S S
Status: SUCCESS                        F S
Status:    success                     S S
Status: failure.                       F F
Status: **success**                    F S
**Status**: success                    F S
status: success                        F S
Status: unsuccessful                   F ?
Status: not success                    F ?
Status: failure (no success)           F ?
Status:                                F ?
- Status: success                      F S
"""
# WebVoyager
SUCCESSES = """
SUCCESS                                S S
NOT SUCCESS                            F F
**SUCCESS**                            S S
**NOT SUCCESS**                        F F
**Verdict**: NOT SUCCESS               F F
Final verdict: "NOT SUCCESS"           F F
It is therefore NOT SUCCESS            F F
Your verdict, SUCCESS or NOT SUCCESS:  F ?
"SUCCESS" or "NOT SUCCESS"? NOT SUCCESS F F
NOT  SUCCESS                           S F
NOT **SUCCESS**                        S F
Not SUCCESS                            S F
UNSUCCESSFUL                           S ?
success                                - ?
FAILURE                                - ?
I cannot tell.                         - ?
"""
SUCCESS_CONTEXTS = (
    "{}",
    "The screenshot shows the recipe with 113 reviews.\n\n{}\n",
    "1. **Requirements**: four stars.\n2. **Result**: 4.6 stars.\n\n{}",
    "The task was completed successfully as far as the first part goes.\n{}",
)
# AgentRewardBench
TAGS = """
<success>Successful</success>          S S
<success>Unsuccessful</success>        F F
<success>SUCCESSFUL</success>          S S
<success> Successful </success>        S S
<success>"Successful"</success>        S S
<success>Yes</success>                 S S
<success>No</success>                  F F
<success>unsuccesful</success>         F ?
<success>**Successful**</success>      - S
<success>Partially Successful</success> - ?
<success>Complete Failure</success>    S ?
<success></success>                    F ?
<success>Successful                    F ?
Successful</success>                   F ?
<Success>Successful</Success>          F S
"""
TAG_CONTEXTS = (
    "<reasoning>The order is there.</reasoning>\n{}\n<side>No</side>\n"
    "<optimal>4. Completely Optimal</optimal>\n<loop>No</loop>",
    "<reasoning>\nIt went round in a loop.\n</reasoning>\n{}\n<side>Yes</side>\n"
    "<optimal>2. Suboptimal</optimal>\n<loop>Yes</loop>\n",
    "{}",
    "Here is my evaluation.\n\n<reasoning>A success at last.</reasoning> {} <loop>No</loop>",
)
# AgentRewardBench's port of NNetNav
REWARDS = """
Reward: 1                              F F
Reward: 4                              S S
Reward: 5                              S S
Reward: 3.                             - ?
Reward: 4/5                            - S
Reward: 5 (done)                       - S
Reward: [2]                            - F
**Reward**: 4                          - S
REWARD: 1                              - F
Reward: 4.5                            - ?
Reward: 10                             S ?
Reward: 0                              F ?
Reward:                                - ?
"""
REWARD_CONTEXTS = (
    "Thought: The form was sent.\n{}",
    "Thought: 3 of 4 parts are done.\n\n{}\n",
    "Thoughts: Little happened after step 4.\n{}\n\n",
    "{}",
)
# browser-use
JUDGEMENTS = """
{"verdict": true}                      S S
{"verdict": false}                     F F
{"verdict": "true"}                    S S
{"verdict": "yes"}                     S ?
{"verdict": 1}                         S S
{"verdict": 2}                         - ?
{"verdict": "success"}                 - ?
{"verdict": [true]}                    - ?
{"verdict": true,}                     - ?
```json {"verdict": true} ```          - S
Here it is: {"verdict": false}         - F
[{"verdict": true}]                    - S
true                                   - ?
"""
REST = (
    ', "reasoning": "All is there.", "failure_reason": "", "impossible_task": false, '
    '"reached_captcha": false',
    ', "reasoning": "", "failure_reason": "A captcha.", "impossible_task": true, '
    '"reached_captcha": true',
    ', "reasoning": "verdict: false", "failure_reason": "x", "impossible_task": "false", '
    '"reached_captcha": "true"',
    ', "reasoning": "Line.\\nAnother.", "failure_reason": "", "impossible_task": 0, '
    '"reached_captcha": 1, "more": 1',
    ', "reasoning": "{}", "failure_reason": "f", "impossible_task": false, "reached_captcha": '
    "false",
)
# the Universal Verifier
OUTCOMES = """
{"output_success": true}               S S
{"output_success": false}              F F
{"output_success": "true"}             - S
{"output_success": 1}                  - S
{"output_success": "success"}          - ?
{"output_success": [true]}             - ?
output_success: true                   - ?
```json {"output_success": true} ```   - S
Result: {"output_success": false}      - F
[{"output_success": true}]             - S
{"output_success": true,}              - ?
I cannot tell.                         - ?
"""
INTENTS = tuple(
    f', "primary_intent": "{intent}", "reasoning": "{reason}"'
    for intent, reason in (
        ("buy tea", "It was bought."),
        ("buy tea", "output_success: false, was my first thought."),
        ("find a price", "The price is {shown}."),
        ("", "A captcha\\nblocked it."),
        ("book", "Stopped before the payment, as it should."),
    )
)


def lines(table: str) -> Iterator[tuple[str, bool | None, bool | None]]:
    for line in table.strip("\n").splitlines():
        verdict, official, ours = line.rsplit(None, 2)
        yield verdict, WORDS[official], WORDS[ours]


def cases() -> Iterator[tuple[str, str, bool | None, bool | None]]:
    texts = {
        "status": (STATUS, STATUS_CONTEXTS),
        "paper_status": (PAPER, STATUS_CONTEXTS),
        "words": (SUCCESSES, SUCCESS_CONTEXTS),
        "tags": (TAGS, TAG_CONTEXTS),
        "reward": (REWARDS, REWARD_CONTEXTS),
    }
    for name, (table, contexts) in texts.items():
        for verdict, official, ours in lines(table):
            for context in contexts:
                yield name, context.replace("{}", verdict), official, ours
    for name, table, rests in (("judgement", JUDGEMENTS, REST), ("outcome", OUTCOMES, INTENTS)):
        for verdict, official, ours in lines(table):
            for rest in rests:
                head, _, tail = verdict.rpartition("}")
                yield name, f"{head}{rest}}}{tail}" if ":" in head else verdict, official, ours


CASES = list(cases())


@pytest.mark.parametrize("name", sorted({name for name, *_ in CASES}))
def test_replies_are_read_by_the_authors_rule_and_by_ours(name: str) -> None:
    reader = READERS[name]
    assert isinstance(reader, VerdictReader)
    wrong = [
        (text, found)
        for grammar, text, official, ours in CASES
        if grammar == name
        and (found := (reader.official(text), read(reader, text))) != (official, ours)
    ]
    assert wrong == []


def read(reader: VerdictReader, text: str) -> bool | None:
    """The reading after the client has parsed the reply; None where it is unscored."""
    try:
        return reader.verdict(Reply(text, Usage(), reader.form.parse(text)), {}).success
    except UnparsableError:
        return None


def test_the_last_verdict_counts_for_us_and_the_first_for_the_authors() -> None:
    text = "The page says Status: Processing.\nStatus: success"
    assert READERS["status"].official(text) is False  # type: ignore[union-attr]
    assert read(READERS["status"], text) is True  # type: ignore[arg-type]
    text = "<success>Successful</success> no: <success>Unsuccessful</success>"
    assert READERS["tags"].official(text) is True  # type: ignore[union-attr]
    assert read(READERS["tags"], text) is False  # type: ignore[arg-type]


def test_questions_beside_the_verdict_are_findings() -> None:
    reader = READERS["tags"]
    assert isinstance(reader, VerdictReader)
    text = (
        "<reasoning>r</reasoning><success>Successful</success><side>Yes</side>"
        "<optimal>3. Somewhat Optimal</optimal><loop>maybe</loop>"
    )
    found = reader.verdict(Reply(text, Usage(), {}), {})
    assert found.reason == "r"
    assert [answer.value for answer in found.findings.answers or ()] == [True, None, 3]


@pytest.mark.parametrize(
    ("reply", "points"),
    [
        ("**Key Points**:\n1. Tea\n2. Cheapest", "1. Tea\n2. Cheapest"),
        ("**Key Points**:\n\n1. Tea\n\n2. Green", "1. Tea\n2. Green"),
        ("Here:\n**Key Points**: \n   1. Tea\n   2. Green", "1. Tea\n2. Green"),
        ("Key Points:\n1. Tea", "1. Tea"),
        ("Key Points: none\nKey Points:\n1. Tea", "1. Tea"),
        ("**Key Points:**\n1. Tea", "**\n1. Tea"),
        ("- **Key Points**:\n1. A\n**Key Points**:\n2. B", "1. A"),
        ("1. Tea\n2. Green", "1. Tea\n2. Green"),
    ],
)
def test_key_points_are_what_the_authors_cut_out(reply: str, points: str) -> None:
    assert read_key_points(reply) == points


@pytest.mark.parametrize(
    ("reply", "grade"),
    [
        ("**Reasoning**: A form.\n\n**Score**: 4", Grade((4,), "A form.")),
        ("1. **Reasoning**: A form\nwith it.\n\n2. **Score**: 5", Grade((5,), "A form with it.")),
        ("**Reasoning**: A form.\n**Score**: [3]", Grade((3,), "A form. **Score**: [3]")),
        ("**Reasoning**: Scoreboard, 2 sets.\n\n**Score**: 5", Grade((2,), "Scoreboard, 2 sets.")),
        ("**Reasoning**: none.\n\nscore: 4", Grade((), "none.")),
        ("**Reasoning**: none.\n\n**Score**: zero", Grade((), "none.")),
        ("**Score**: 4/5\n\n**Reasoning**: late.", Grade((4,), "late.")),
        ("A form. Score 3", Grade((3,), "A form. Score 3")),
        ("", Grade((), "")),
    ],
)  # fmt: skip
def test_grades_are_what_the_authors_read(reply: str, grade: Grade) -> None:
    assert read_grade(reply) == grade


# Recorded replies


def recorded(name: str) -> Path:
    folder = Path(os.environ.get("PRILL_DATA") or ROOT.parent / "shared" / "data") / name
    if not folder.is_dir():
        pytest.skip(f"no recordings in {folder}; PRILL_DATA says where they are")
    return folder


@pytest.mark.labelled
def test_recorded_webjudge_replies_are_read_as_recorded() -> None:
    """979 replies of three models. The recording has the last status of a reply, the authors' code
    the first: they differ only where a reply quotes a status.
    """
    reader = READERS["status"]
    assert isinstance(reader, VerdictReader)
    count, apart = 0, []
    with gzip.open(recorded("arb_webjudge") / "labels.jsonl.gz") as rows:
        for row in rows:
            for judge in json.loads(row)["reference_judges"].values():
                success = judge["verdict"] == "success"
                assert read(reader, judge["text"]) is success, judge["text"]
                count += 1
                if reader.official(judge["text"]) is not success:
                    apart.append(judge["text"])
    assert count > 900
    assert len(apart) == 1
    assert apart[0].lower().count("status:") > 1


@pytest.mark.labelled
def test_recorded_webvoyager_replies_are_read_as_recorded() -> None:
    """720 runs: a verdict that was recorded without either word has no label. Where the authors
    find SUCCESS inside another word, the verdict is unscored, never the opposite.
    """
    reader = READERS["words"]
    assert isinstance(reader, VerdictReader)
    [path] = recorded("webvoyager30_notte").glob("*.jsonl.gz")
    seen: Counter[tuple[str | None, bool | None]] = Counter()
    unscored = 0
    with gzip.open(path) as rows:
        for row in rows:
            judge = json.loads(row)["llm_judge"] or {}
            text = judge.get("reason") or ""
            seen[judge.get("eval"), reader.official(text)] += 1
            ours = read(reader, text)
            assert ours in (None, reader.official(text)), text
            unscored += ours is not reader.official(text)
    assert seen["success", True] > 300
    assert seen["failure", False] > 200
    assert unscored < 10
    assert set(seen) <= {
        *(("success", True), ("failure", False), ("failure", None)),
        *(("unknown", None), (None, None)),
    }
