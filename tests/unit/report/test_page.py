"""The report: what stands in the file."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.evaluators.agreement.agreement import agreement, measure_agreement, pair
from prill.evaluators.agreement.trivial import compare_with_baselines
from prill.evaluators.fitted.overlap import OUT_OF_FOLD
from prill.io.store import BadLine, encode
from prill.models.transcripts import Call, ImageFile, Transcript, TranscriptLog, Turn
from prill.types import (
    Action,
    Citation,
    Criterion,
    Findings,
    LabelRecord,
    Observation,
    Opinion,
    Step,
    StepVerdict,
    Task,
    Trajectory,
    Usage,
)
from prill.ui.report.calls import MAX_CALL_TEXT, MAX_CALLS_TEXT
from prill.ui.report.entries import Judge, Outcome, ReportRow, read_judges
from prill.ui.report.headline import headline
from prill.ui.report.page import write_report
from prill.ui.report.plots import curve_plot
from prill.ui.report.summary import judge_pairs
from tests.support.report.judges import (
    FIRST,
    TRUTH,
    blocks,
    judges,
    labels,
    overview,
    picture,
    trajectory,
    verdict,
)


def test_confusion_counts_match_agree(tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", map(trajectory, TRUTH), judges(), labels())
    cells = re.findall(
        r'data-judge="0" data-verdict="(\w+)" data-truth="(\w+)">(\d+)<',
        (tmp_path / "r.html").read_text("utf-8"),
    )
    counts = {(truth, outcome): int(count) for outcome, truth, count in cells}
    confusion = agreement(judges()[0].verdicts.values(), labels()).confusion
    assert (confusion.tp, confusion.fp, confusion.tn, confusion.fn) == (1, 1, 1, 1)
    assert counts == {
        ("success", "success"): 1,
        ("failure", "success"): 1,
        ("failure", "failure"): 1,
        ("success", "failure"): 1,
        ("success", "unscored"): 1,
    }


def test_failures_stand_by_cause_among_the_judged(tmp_path: Path) -> None:
    """Runs that nobody called failed are none, and unscored ones are not judged."""
    stuck = trajectory("d", final=Observation(text="<b>captcha</b>: are you human?"))
    items = [trajectory("a"), trajectory("c"), stuck, trajectory("e"), trajectory("z")]
    first, _ = judges()
    verdicts = {**first.verdicts, "e": verdict("e", None)}
    write_report(tmp_path / "r.html", items, [replace(first, verdicts=verdicts)])
    page = (tmp_path / "r.html").read_text("utf-8")
    section = page[page.index("What went wrong") :].partition("</section>")[0]
    assert "2 of 3 judged runs failed" in section
    assert re.findall(r"<summary>(\d+) × ([^<]+)</summary>", section) == [
        ("1", "a captcha at the end"),
        ("1", "no cause found; what a judge says"),
    ]
    assert "first: because c" in section and "because d" not in section
    assert '<a href="#t=d">' in section and "step=1" in section  # and its state


def test_reasons_that_runs_share_are_no_causes_and_the_first_screen_shows_an_own_one(
    tmp_path: Path,
) -> None:
    shot = picture(tmp_path / "shots", "s.png")
    tap = Step(Observation(shot), Action("click", point=(0.5, 0.5)))
    items = [trajectory(id, [tap], final=Observation(shot)) for id in "abcd"]
    said = {id: replace(verdict(id, False), reason=f"the goal; {OUT_OF_FOLD}") for id in "abd"}
    said["c"] = replace(verdict("c", False), reason=f"<b>asked</b> for 'x'; {OUT_OF_FOLD}")
    truth = [LabelRecord(id=id, success=False) for id in "abcd"]
    write_report(tmp_path / "r.html", items, [Judge("first", FIRST, said)], truth)
    page = (tmp_path / "r.html").read_text("utf-8")
    section = page[page.index("What went wrong") :].partition("</section>")[0]
    assert "1 × no cause found; what a judge says" in section and "3 × no cause found<" in section
    assert "the goal" not in section
    assert '<div id="example" data-run="2" data-step="0">' in page
    assert "first: &lt;b&gt;asked&lt;/b&gt; for &#39;x&#39;</p>" in page
    write_report(tmp_path / "r.html", map(trajectory, "ab"), [Judge("first", FIRST, said)], truth)
    assert 'id="example"' not in (tmp_path / "r.html").read_text("utf-8")


def test_judges_have_calls_tokens_and_the_cost_of_a_correct_verdict(tmp_path: Path) -> None:
    used = Usage(calls=2, prompt_tokens=90, completion_tokens=10, usd=0.03)
    said = {id: verdict(id, True, usage=used) for id in "abcd"}
    truth = [LabelRecord(id=id, success=id != "a") for id in "abcd"]
    write_report(tmp_path / "r.html", map(trajectory, "abcd"), [Judge("first", FIRST, said)], truth)
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "<td>8<small>2 a verdict</small></td><td>400<small>100 a verdict</small></td>" in page
    assert "<td>$0.12<small>$0.04, 133 tokens a correct verdict</small></td>" in page


def test_rows_say_cost_and_unknown_costs_are_not_zero(tmp_path: Path) -> None:
    spent = {
        "a": Usage(calls=1, prompt_tokens=100, completion_tokens=20, usd=0.0123456),
        "b": Usage(calls=1, prompt_tokens=100, completion_tokens=20, usd=None),
        "c": Usage(),
        "d": Usage(calls=1, usd=0.0),
    }
    verdicts = {
        id: replace(verdict(id, id == "a"), usage=usage, reason="") for id, usage in spent.items()
    }
    write_report(tmp_path / "r.html", map(trajectory, "abcde"), [Judge("first", FIRST, verdicts)])
    rows = {row["id"]: row for row in overview(tmp_path / "r.html")["rows"]}
    costs = {id: (row["usd"][0], row["tokens"][0]) for id, row in rows.items()}
    assert costs == {
        "a": (0.0123, None),
        "b": (None, 120),
        "c": (None, None),  # nothing says that a model was called
        "d": (0.0, None),
        "e": (None, None),
    }


def test_broken_line_keeps_its_verdict(tmp_path: Path) -> None:
    broken = BadLine("b", "t.jsonl:2", "missing field `task`", b"{}")
    written = write_report(tmp_path / "r.html", [trajectory("a"), broken], judges(), labels())
    assert (written.trajectories, written.broken) == (1, ("t.jsonl:2: missing field `task`",))
    assert overview(tmp_path / "r.html")["rows"][1]["outcomes"] == ["success", "failure"]


BEFORE = '<meta name="generator" content="prill report">the page before'


def test_label_sources_are_never_mixed(tmp_path: Path) -> None:
    both = [*labels(), *(LabelRecord(id=id, success=True, source="oracle") for id in TRUTH)]
    page = tmp_path / "r.html"
    page.write_text(BEFORE)
    with pytest.raises(UsageError, match="several sources"):
        write_report(page, map(trajectory, TRUTH), judges(), both)
    assert page.read_text() == BEFORE
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
    write_report(page, map(trajectory, TRUTH), judges(), both, source="oracle")
    assert {row["truth"] for row in overview(page)["rows"]} == {"success"}
    assert {label["source"] for label in json.loads(blocks(page)["t0"])["labels"]} == {"oracle"}


def test_failure_leaves_the_old_page(tmp_path: Path) -> None:
    def breaking() -> Iterable[Trajectory]:
        yield trajectory("a")
        raise KeyboardInterrupt

    page = tmp_path / "r.html"
    page.write_text(BEFORE)
    with pytest.raises(KeyboardInterrupt):
        write_report(page, breaking())
    assert page.read_text() == BEFORE
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_no_field_makes_the_page_long(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    findings = Findings(
        criteria=(Criterion(text=long, met="met", reason=long),),
        not_executable=long,
        side_effects=(long,),
        process=1.0,
        citations=(Citation(text=long, step=0, status="shown"),) * 1000,
    )
    opinions = (Opinion(judge=long, success=True, reason=long),)
    steps = (StepVerdict(0, "away", 0.0, long),)
    long_verdict = replace(
        verdict("a", True, findings=findings, opinions=opinions, steps=steps), reason=long
    )
    turn = trajectory("e", answer=long, task=Task(goal=long))
    item = trajectory(
        "a",
        [Step(Observation(text=long), Action("click"))],
        error=long,
        task=Task(goal=long, earlier=(turn,)),
    )
    write_report(tmp_path / "r.html", [item], [Judge("first", FIRST, {"a": long_verdict})])
    assert (tmp_path / "r.html").stat().st_size < 220_000


def kept_calls(folder: Path, page: Path, *calls: Call, key: str = "k") -> dict[str, str]:
    """The packed calls in a page on one verdict, whose transcripts are a run's that was judged
    again.
    """
    with TranscriptLog(folder) as log:
        log.append(Transcript("a", "k", (Call(model="old", messages=(), reply="before"),)))
        log.append(Transcript("a", "k", calls))
    write_report(
        page,
        [trajectory("a")],
        [Judge("first", FIRST, {"a": replace(verdict("a", True), key=key)}, folder)],
    )
    return {id: text for id, text in blocks(page).items() if id.startswith("c")}


def test_last_calls_of_a_verdict_are_kept(tmp_path: Path) -> None:
    turns = (Turn("user", ("Judge this", ImageFile(str(tmp_path / "shot.png")))),)
    packed = kept_calls(
        tmp_path / "v", tmp_path / "r.html", Call(model="m", messages=turns, reply="success")
    )
    held = json.loads(zlib.decompress(base64.b64decode(packed["c0-0"])))
    assert [call["reply"] for call in held["calls"]] == ["success"]
    assert held["calls"][0]["messages"] == [
        {"role": "user", "text": "Judge this\n\n[picture shot.png]"}
    ]
    assert (
        kept_calls(tmp_path / "w", tmp_path / "s.html", Call(model="m", messages=()), key="another")
        == {}
    )


def test_calls_make_no_page_long(tmp_path: Path) -> None:
    call = Call(model="m", messages=(Turn("user", ("x" * 1_000_000,)),), reply="y" * 1_000_000)
    packed = kept_calls(tmp_path / "v", tmp_path / "r.html", *[call] * 50)
    held = json.loads(zlib.decompress(base64.b64decode(packed["c0-0"])))
    assert len(held["calls"]) + held["left_out"] == 50
    assert len(held["calls"]) == MAX_CALLS_TEXT // (2 * MAX_CALL_TEXT + 200)
    assert "more characters are not in this page" in held["calls"][0]["reply"]


def test_list_filters_by_metadata_key(tmp_path: Path) -> None:
    items = [
        trajectory("a", metadata={"truncated": True, "seed": 3}),
        trajectory("b", metadata={"truncated": False}),
        BadLine("c", "t.jsonl:3", "broken", b""),
    ]
    write_report(tmp_path / "r.html", items, by=["seed"])
    page_data = overview(tmp_path / "r.html")
    assert page_data["parts"] == ["site", "agent", "platform", "truncated", "seed"]
    assert [row["parts"][3:] for row in page_data["rows"]] == [
        ["true", "3"],
        ["false", None],
        [None, None],
    ]
    with pytest.raises(UsageError, match="no trajectory has a value for 'sead'"):
        write_report(tmp_path / "s.html", items, by=["sead"])
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_two_judges_where_both_judged() -> None:
    # By hand: they differ on b and d; on b the second is right, on d the first; of f nobody knows.
    letters = {"a": "ss", "b": "sf", "c": "ff", "d": "fs", "e": "us", "f": "fs"}
    words: dict[str, Outcome] = {"s": "success", "f": "failure", "u": "unscored"}
    truth: dict[str, Outcome] = {
        "a": "success",
        "b": "failure",
        "c": "failure",
        "d": "failure",
        "e": "success",
        "f": "undecided",
    }
    rows = [
        ReportRow(id=id, goal="", truth=truth[id], outcomes=tuple(words[c] for c in both))
        for id, both in letters.items()
    ]
    [pair] = judge_pairs(rows, ["first", "second"])
    assert (pair.names, pair.both, pair.differ, pair.first_right, pair.second_right, pair.p) == (
        "first – second",
        5,
        3,
        1,
        1,
        "1.000",
    )
    assert (pair.among_first, pair.among_second) == ("differ", "differ")


@pytest.mark.parametrize(
    ("costs", "cost_text"),
    [
        ((0.0, 0.0), "$0.00"),
        ((0.25, 0.5), "$0.75"),
        ((0.0, None), "unknown"),
        ((0.25, None), "≥ $0.25"),
    ],
)
def test_cost_partly_unknown_is_no_cost(
    tmp_path: Path, costs: tuple[float | None, ...], cost_text: str
) -> None:
    verdicts = {
        id: verdict(id, True, usage=Usage(calls=1, usd=usd))
        for id, usd in zip("ab", costs, strict=True)
    }
    write_report(tmp_path / "r.html", map(trajectory, "ab"), [Judge("first", FIRST, verdicts)])
    line = re.search(
        r'<tr><th scope="row"><span>first</span>.*?</tr>',
        (tmp_path / "r.html").read_text("utf-8"),
        re.DOTALL,
    )
    assert line is not None
    assert re.findall(r"<td>([^<]*)</td>", line[0])[-2] == cost_text


def test_annotator_agreement_is_shown(tmp_path: Path) -> None:
    both = [LabelRecord(id=id, success=id in "ab", annotator="Ann") for id in "abcd"]
    both += [LabelRecord(id=id, success=id in "ac", annotator="Bob") for id in "abcd"]
    both.append(LabelRecord(id="not in the page", success=True, annotator="Bob"))
    write_report(tmp_path / "r.html", map(trajectory, TRUTH), judges(), both)
    text = (tmp_path / "r.html").read_text("utf-8")
    assert "on 4 trajectories with two or more: 0.500" in text
    assert "Cohen's kappa 0.000" in unescape(text)
    write_report(tmp_path / "r.html", map(trajectory, TRUTH), judges(), labels())
    assert "Annotators among themselves" not in (tmp_path / "r.html").read_text("utf-8")


@pytest.mark.parametrize(
    "hostile", ["</script><script>alert(1)", "<!--<script>", "\u2028\u2029", "&lt;", "{{script}}"]
)
def test_no_text_ends_its_json_block(tmp_path: Path, hostile: str) -> None:
    item = replace(trajectory("a"), id=hostile, answer=hostile, task=Task(goal=hostile))
    write_report(
        tmp_path / "r.html",
        [item],
        [Judge(hostile, FIRST, {hostile: verdict(hostile, True)})],
        title=hostile,
    )
    held = blocks(tmp_path / "r.html")
    assert set(held) == {"overview", "t0"}
    assert json.loads(held["t0"])["trajectory"]["answer"] == hostile
    assert json.loads(held["overview"])["rows"][0]["goal"] == hostile
    assert json.loads(held["overview"])["judges"] == [hostile]
    assert not set("<>&\u2028\u2029") & set(held["t0"] + held["overview"])


def test_images_linked_from_the_page(tmp_path: Path) -> None:
    image = picture(tmp_path / "data", "50% #1.png")
    item = trajectory("a", [Step(Observation(screenshot=image), Action("click"))])
    inside = write_report(tmp_path / "r.html", [item])
    assert (
        json.loads(blocks(tmp_path / "r.html")["t0"])["pictures"][0]["src"]
        == "data/50%25%20%231.png"
    )
    (tmp_path / "pages").mkdir()
    outside = write_report(tmp_path / "pages" / "r.html", [item])
    assert (
        json.loads(blocks(tmp_path / "pages" / "r.html")["t0"])["pictures"][0]["src"]
        == "../data/50%25%20%231.png"
    )
    assert (inside.outside, outside.outside) == (0, 1)


def test_image_embedded_once_and_scaled(tmp_path: Path) -> None:
    image = picture(tmp_path / "data", "big.bmp", (2000, 1600))
    step = Step(Observation(screenshot=image), Action("click"))
    write_report(
        tmp_path / "r.html", [trajectory("a", [step, step]), trajectory("b", [step])], embed=True
    )
    held = blocks(tmp_path / "r.html")
    assert set(held) == {"overview", "p0", "t0", "t1"}
    assert held["p0"].startswith("data:image/webp;base64,")
    assert len(held["p0"]) < 100_000
    assert [p["embedded"] for n in "01" for p in json.loads(held[f"t{n}"])["pictures"]] == [0, 0, 0]
    assert str(tmp_path) not in (tmp_path / "r.html").read_text("utf-8")


@pytest.mark.parametrize("embed", [False, True])
def test_missing_images_are_named(tmp_path: Path, embed: bool) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    states = [
        Observation(screenshot=str(tmp_path / name)) for name in ("gone.png", "bad.png", "gone.png")
    ]
    item = trajectory("a", [Step(state, Action("click")) for state in states])
    written = write_report(tmp_path / "r.html", [item], embed=embed)
    assert [Path(path).name for path in written.missing] == ["gone.png", "bad.png"]
    pictures = json.loads(blocks(tmp_path / "r.html")["t0"])["pictures"]
    assert [(p["name"], p.get("src"), p.get("embedded")) for p in pictures[:2]] == [
        ("gone.png", None, None),
        ("bad.png", None, None),
    ]


def test_file_of_two_evaluators_two_judges(tmp_path: Path) -> None:
    changed = replace(FIRST, prompt="sha256:123456789abc")
    path, other = tmp_path / "v.jsonl", tmp_path / "w.jsonl"
    path.write_bytes(
        encode(verdict("a", True))
        + encode(verdict("a", False, changed))
        + encode(verdict("a", None, changed))
    )
    other.write_bytes(encode(verdict("a", True)))
    judges_read = read_judges([path, other])
    assert [judge.name for judge in judges_read] == [
        "first · m · v1 · v",
        "first · m · v1 · 12345678 · v",
        "first · m · v1 · w",
    ]
    assert [judge.verdicts["a"].success for judge in judges_read] == [True, None, True]


def test_curve_marks_verdicts_and_threshold() -> None:
    # By hand: at 0.6 three of four are successes, and three of the four successes are found.
    scored = ([0.9, 0.8, 0.7, 0.6, 0.3, 0.1], [True, True, False, True, True, False])
    plot = curve_plot(scored, [], (0.5, 1.0), 0.55)
    assert "score ≥ 0.55: precision 0.750, recall 0.750" in plot.caption
    ring = re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="7"', plot.svg)
    corners = re.findall(
        r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="middle" class="tick">0?(?:\.75|1|0)<',
        plot.svg,
    )
    assert ring is not None
    left, three_quarters, right = (float(x) for x, _ in corners)
    assert float(ring[1]) == pytest.approx(three_quarters)
    assert float(ring[1]) == pytest.approx(left + 0.75 * (right - left))
    assert "no score reaches 1" in curve_plot(scored, [], None, 1.0).caption


def compared(tp: int, fp: int, tn: int, fn: int, unscored: int = 0) -> str:
    """The sentence on a judge with so many of each, every trajectory a task of its own."""
    kinds = (
        [(True, True)] * tp
        + [(True, False)] * fp
        + [(False, False)] * tn
        + [(False, True)] * fn
        + [(None, True)] * unscored
    )
    said = {f"t{i}": verdict(f"t{i}", success) for i, (success, _) in enumerate(kinds)}
    truth = [LabelRecord(id=f"t{i}", success=label) for i, (_, label) in enumerate(kinds)]
    pairing = pair(said.values(), truth)
    (rules,) = compare_with_baselines([pairing], None)
    return headline("vlm", measure_agreement(pairing), {}, rules)


def test_headline_names_all_four_figures() -> None:
    # By hand: accuracy 160 / 200, chance 0.5, so kappa 0.6; the constant answer is right on 100 of
    # 200.
    sentence = compared(70, 10, 90, 30, unscored=4)
    assert re.fullmatch(
        r"vlm agrees with people at kappa 0\.60 \[0\.4\d, 0\.7\d\] on 200 trajectories, "
        r"better than the best rule without a judge \(always failure, 50% right\): "
        r"accuracy \+0\.300 \[\+0\.\d+, \+0\.\d+\]; it misses 30 of 100 successes \(30 %\) "
        r"and judges 10 of 100 failures \(10 %\) as success; 4 more are unscored, and not among these\.",  # noqa: E501
        sentence,
    )


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (
            (6, 4, 6, 4),
            "not shown to be better than the best rule without a judge (always failure, 50% right)",
        ),  # 0.6, and its interval holds 0.5
        # 0.6 [0.5, 0.7]
        (
            (10, 30, 50, 10),
            "worse than the best rule without a judge (always failure, 80% right): accuracy -0.2",
        ),
        (
            (60, 40, 0, 0),
            "at kappa 0.00 on 100 trajectories, no better than the best rule without a judge "
            "(always success, 60% right): accuracy +0.000, without an interval",
        ),
        ((60, 40, 0, 0), "it misses none of 60 successes and judges all of 40 failures as success"),
        ((3, 2, 7, 4), "it misses 4 of 7 successes and judges 2 of 9 failures as success"),
        ((98, 1, 99, 2), "it misses 2 of 100 successes (2 %)"),
        ((299, 1, 99, 1), "it misses 1 of 300 successes (under 1 %)"),
        ((2, 0, 0, 0), "judges none of no failures as success"),
    ],
)
def test_headline_words_follow_figures(cells: tuple[int, int, int, int], words: str) -> None:
    assert words in compared(*cells)


def test_what_is_absent_takes_no_room(tmp_path: Path) -> None:
    """Empty fields are left out of the page; words that look like them are not."""
    words = ',"url":null,"value":null{"text":null,'
    item = trajectory("a", [Step(Observation(text=words), Action("click"), words)], answer=words)
    write_report(tmp_path / "r.html", [item], judges())
    shown = json.loads(blocks(tmp_path / "r.html")["t0"])
    [step] = shown["trajectory"]["steps"]
    assert step["thought"] == step["observation"]["text"] == shown["trajectory"]["answer"] == words
    assert "url" not in step["observation"] and "evaluator" not in shown["verdicts"][0]
    assert shown["verdicts"][0]["usage"]["usd"] == 0 and shown["verdicts"][0]["score"] == 0.9
