"""Answers of the judge `ask` against answers in labels: by hand, and against other packages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

import prill
from prill.cli import main
from prill.errors import InputError, UsageError
from prill.evaluators.agreement.answers import AnswersAgreement, measure_answers
from prill.io.store import encode
from prill.types import Answer, EvaluatorInfo, Findings, LabelRecord, Verdict

WALL, PAGES, WHERE = "Was a login wall met?", "How many pages?", "Where did it end?"
ASK = EvaluatorInfo(
    "ask",
    "1",
    "m",
    params={
        "questions": [
            {"question": WALL, "answer": "yes/no"},
            {"question": PAGES, "answer": "number"},
            {"question": WHERE, "answer": ["a", "b", "c"]},
        ]
    },
)


def verdict(id: str, judge: EvaluatorInfo = ASK, **told: Any) -> Verdict:
    answers = tuple(Answer(question=globals()[name], value=value) for name, value in told.items())
    return Verdict(id=id, success=True, evaluator=judge, findings=Findings(answers=answers))


def label(id: str, annotator: str | None = None, **told: Any) -> LabelRecord:
    answers = {globals()[name]: value for name, value in told.items()}
    return LabelRecord(id=id, success=None, annotator=annotator, answers=answers)


def compare(name: str, told: list[Any], true: list[Any], **options: Any) -> AnswersAgreement:
    verdicts = [verdict(str(i), **{name: value}) for i, value in enumerate(told)]
    labels = [label(str(i), **{name: value}) for i, value in enumerate(true)]
    return measure_answers(verdicts, labels, **options)


def test_labels_by_hand() -> None:
    told, true = list("aabcc"), list("abbca")
    (one,) = compare("WHERE", told, true).questions
    assert (one.kind, one.compared) == ("label", 5)
    assert one.figure("equal").value == pytest.approx(3 / 5)
    # chance: (2 * 2 + 1 * 2 + 2 * 1) / 25
    assert one.figure("kappa").value == pytest.approx((0.6 - 0.32) / 0.68)
    assert one.figure("kappa").value == pytest.approx(cohen_kappa_score(told, true))
    assert (one.majority, one.majority_answer) == (pytest.approx(0.4), "a")


def test_numbers_by_hand() -> None:
    told, true = [1, 2, 3, 6], [1, 2, 4, 4]
    (one,) = compare("PAGES", told, true).questions
    assert one.figure("equal").value == 0.5
    assert one.figure("mean absolute error").value == pytest.approx((0 + 0 + 1 + 2) / 4)
    assert one.figure("correlation").value == pytest.approx(stats.pearsonr(told, true)[0])
    # Lin: 2 * covariance / (both variances + squared difference of the means)
    lin = 2 * 2 / (3.5 + 1.6875 + 0.25**2)
    assert np.cov(told, true, ddof=0)[0, 1] == pytest.approx(2)
    assert one.figure("concordance (Lin)").value == pytest.approx(lin)


def test_what_is_not_compared_is_counted_and_in_no_figure() -> None:
    verdicts = [
        verdict("1", WALL=True),
        verdict("2", WALL=None),
        Verdict(id="3", unscored="timeout", evaluator=ASK),
        verdict("5", WALL=True),
        verdict("6", WALL=True),
        verdict("7", PAGES=2),
    ]
    labels = [label(str(i), WALL=True) for i in range(1, 5)]
    labels += [label("5", WALL=None), label("6", "ada", WALL=True), label("6", "bo", WALL=False)]
    labels += [LabelRecord(id="8", success=True)]
    result = measure_answers(verdicts, labels)
    (one,) = result.questions
    assert (one.compared, one.cannot_tell, one.missing, one.undecided) == (1, 1, 1, 2)
    assert one.unscored == {"timeout": 1}
    assert one.figure("equal").value == 1
    assert one.figure("equal, unscored as wrong").value == pytest.approx(1 / 4)
    assert result.unlabelled == (PAGES, WHERE)
    page = str(result)
    for words in ("1 the judge cannot tell", "1 unscored: timeout", "2 undecided labels"):
        assert words in page


def test_fields_of_an_object_are_compared_one_by_one() -> None:
    judge = EvaluatorInfo(
        "ask", "1", "m", params={"questions": [{"question": WHERE, "answer": {}}]}
    )
    told = [{"item": "tea", "price": 3.5}, {"item": "tea", "price": 4}, None]
    verdicts = [verdict(str(i), judge, WHERE=value) for i, value in enumerate(told)]
    labels = [label(str(i), WHERE={"item": "tea", "price": 3.5}) for i in range(3)]
    item, price = measure_answers(verdicts, labels).questions
    assert (item.question, item.kind) == (f"{WHERE} / item", "label")
    assert (price.question, price.kind) == (f"{WHERE} / price", "number")
    assert item.figure("equal").value == 1 and item.cannot_tell == 1
    assert price.figure("mean absolute error").value == pytest.approx(0.25)


def test_what_cannot_be_compared_is_refused() -> None:
    verdicts = [verdict("1", WALL=True)]
    with pytest.raises(UsageError, match="no label has answers"):
        measure_answers(verdicts, [LabelRecord(id="1", success=True)])
    with pytest.raises(UsageError, match="the verdicts have no answers"):
        plain = Verdict(id="1", success=True, evaluator=EvaluatorInfo("vlm", "1"))
        measure_answers([plain], [label("1", WALL=True)])
    with pytest.raises(UsageError, match="answer different questions"):
        other = LabelRecord(id="1", success=None, answers={"Why?": "so"})
        measure_answers(verdicts, [other])
    with pytest.raises(UsageError, match="no id in common"):
        measure_answers(verdicts, [label("2", WALL=True)])
    with pytest.raises(InputError, match="the label of '1'.*not one of the choices"):
        measure_answers([verdict("1", WHERE="a")], [label("1", WHERE="d")])


def test_the_command_reads_answers_from_label_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts = [verdict(str(i), PAGES=i, WHERE="a") for i in range(25)]
    (tmp_path / "v.jsonl").write_bytes(b"".join(map(encode, verdicts)))
    lines = [
        {"id": str(i), "success": None, "answers": {PAGES: str(i + 1), WHERE: "A" if i else None}}
        for i in range(25)
    ]
    path = tmp_path / "l.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert list(prill.read_labels(path))[3].answers == {PAGES: "4", WHERE: "A"}
    assert main(["check", str(path)]) == 0
    capsys.readouterr()
    command = ["agree", str(tmp_path / "v.jsonl"), str(path), "--metric", "answers"]
    assert main(command) == 0
    page = capsys.readouterr().out
    assert f"{PAGES} (number, 25 compared)" in page
    assert "mean absolute error            1.000" in page
    assert f"{WHERE} (label, 24 compared)" in page and "1 undecided labels" in page
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["questions"][0]["figures"][1]["value"] == pytest.approx(1)
    result = prill.agree(
        prill.AgreeConfig(verdicts=[tmp_path / "v.jsonl"], labels=path, metric="answers")
    )
    assert set(result.to_pandas()["question"]) == {PAGES, WHERE}
    with pytest.raises(UsageError, match="one judge's verdicts"):
        result.agreement  # noqa: B018
    assert main([*command, "--steps"]) == 2
