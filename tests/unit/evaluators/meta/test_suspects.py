"""Labels that are probably wrong: who is suspected, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image as Picture

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.evaluators.meta import pair
from prill.evaluators.meta.suspects import find_suspects
from prill.io.store import encode
from prill.types import (
    Action,
    EvaluatorInfo,
    LabelRecord,
    Observation,
    Opinion,
    Step,
    Task,
    Trajectory,
    Verdict,
)


def verdict(id: str, score: float | None, judge: str = "vlm") -> Verdict:
    info = EvaluatorInfo(judge, "1")
    if score is None:
        return Verdict(id=id, unscored="timeout", evaluator=info)
    return Verdict(id=id, success=score >= 0.5, score=score, reason=f"by {judge}", evaluator=info)


def labels(**truths: bool) -> list[LabelRecord]:
    return [LabelRecord(id=id, success=truth) for id, truth in truths.items()]


def attempt(id: str, *states: Observation, answer: str | None = None) -> Trajectory:
    steps = tuple(Step(state, Action("click")) for state in states[:-1])
    return Trajectory(
        id=id, task=Task(goal=f"goal {id}"), steps=steps, final=states[-1], answer=answer
    )


def test_labels_that_every_judge_contradicts_are_suspected() -> None:
    truths = labels(all=True, sure=False, one=True, open=True, right=True, unscored=True)
    first = [
        verdict(id, score)
        for id, score in {
            "all": 0.4,
            "sure": 0.99,
            "one": 0.1,
            "open": 0.1,
            "right": 0.9,
            "unscored": None,
        }.items()
    ]
    second = [
        verdict(id, score, "rubric")
        for id, score in {"all": 0.4, "sure": 0.9, "one": 0.9, "open": None}.items()
    ]
    found = find_suspects([pair(first, truths), pair(second, truths)])
    assert [suspect.id for suspect in found] == ["sure", "all", "open"]
    assert found[0].reasons == (
        "labelled a failure, but every judge says success (2 of 2 are scored)",
    )
    assert [judge.judge for judge in found[0].judges] == ["vlm", "rubric"]
    assert "(1 of 2 are scored)" in found[2].reasons[0]


def test_judges_inside_a_vote_count_each() -> None:
    info = EvaluatorInfo("vote", "1")
    parts = (Opinion(judge="a", success=True), Opinion(judge="b", success=False))
    voted = Verdict(id="x", success=False, evaluator=info, opinions=parts)
    assert not find_suspects([pair([voted], labels(x=True))])


def test_a_success_without_a_change_of_state_is_suspected(tmp_path: Path) -> None:
    def shot(name: str, shade: int) -> Observation:
        path = tmp_path / name
        Picture.new("RGB", (9, 9), (shade, 0, 0)).save(path)
        return Observation(screenshot=str(path))

    runs = [
        attempt("same", shot("1.png", 1), shot("2.png", 1)),
        attempt("other", shot("3.png", 1), shot("4.png", 2)),
        attempt("answered", *[Observation(text="page")] * 2, answer="12"),
        attempt("failed", *[Observation(text="page")] * 2),
        attempt("nothing", Observation(text="page")),
        attempt("moved", Observation(text="page", url="a"), Observation(text="page", url="b")),
        attempt("gone", *[Observation(screenshot=str(tmp_path / "no.png"))] * 2),
    ]
    ids = {run.id: run.id != "failed" for run in runs}
    right = [verdict(id, float(truth)) for id, truth in ids.items()]
    found = find_suspects([pair(right, labels(**ids))], runs)
    assert [suspect.id for suspect in found] == ["gone", "nothing", "same"]
    assert "no state differs from the first after 1 actions" in found[2].reasons[0]
    assert found[2].goal == "goal same"
    both = find_suspects([pair([verdict("same", 0.1)], labels(same=True))], runs)
    assert len(both[0].reasons) == 2


def test_agree_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    v, known, t, out = (tmp_path / f"{name}.jsonl" for name in "vlto")
    v.write_bytes(b"".join(encode(verdict(id, score)) for id, score in (("a", 0.1), ("b", 0.9))))
    known.write_bytes(b"".join(map(encode, labels(a=True, b=True))))
    prill.write_trajectories(
        t, [attempt(id, Observation(text="x"), Observation(text="y")) for id in "ab"]
    )
    command = ["agree", str(v), str(known), "--trajectories", str(t), "--suspects", str(out)]
    for _ in range(2):  # it is replaced
        assert main(command) == 0
    assert "Labels that are probably wrong: 1" in capsys.readouterr().out
    (record,) = map(json.loads, out.read_text().splitlines())
    assert (record["id"], record["label"], record["judges"][0]["reason"]) == ("a", True, "by vlm")
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["suspects"] == 1
    with pytest.raises(UsageError, match="not for steps"):
        prill.AgreeConfig(verdicts=v, labels=known, suspects=out, steps=True).check()
    assert main(["agree", str(v), str(known), "--suspects", str(known)]) == 2
