"""`prill protocols` on files, with the mock endpoint as a process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.evaluators.meta.protocols import measure_agreements, official_label
from prill.evaluators.protocols.presets import list_protocols
from prill.testing import MockServer
from prill.types import (
    Action,
    EvaluatorInfo,
    LabelRecord,
    Observation,
    Step,
    Task,
    Trajectory,
    Verdict,
)

REPLIES = "tests.support.protocol_replies:reply"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[MockServer]:
    with MockServer(truth=REPLIES) as server:
        yield server


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two agents at three tasks; agent b succeeds, agent a does not. Each run has three frames."""
    made = []
    for task in range(3):
        for agent in ("a", "b"):
            states = []
            for i in range(3):
                path = tmp_path / f"{task}{agent}{i}.png"
                Image.new("RGB", (60, 40), (task * 80, ord(agent), i * 60)).save(path)
                states.append(Observation(str(path), text=f"page {i} of {agent}", url="http://x"))
            truth = "success" if agent == "b" else "failure"
            made.append(
                Trajectory(
                    id=f"{task}{agent}",
                    task=Task(id=f"t{task}", goal=f"Buy tea {task} truth={truth}", platform="web"),
                    agent=agent,
                    steps=tuple(Step(s, Action("click", "click [1]"), "so") for s in states[:2]),
                    final=states[2],
                    answer="Bought.",
                )
            )
    prill.write_trajectories(tmp_path / "t.jsonl", made)
    return tmp_path / "t.jsonl"


def command(runs: Path, endpoint: MockServer, *more: str) -> list[str]:
    folder = str(runs.parent / "out")
    model = ("--model", "gpt-4o", "--base-url", endpoint.base_url)
    return ["protocols", str(runs), "-o", folder, *model, *more]


def test_a_try_out_with_the_mock_endpoint_scores_every_protocol(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with MockServer() as server:
        assert main(command(runs, server, "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    for rate in told["rates"]:
        assert (rate["scored"], rate["rate"]["value"]) == (6, 0.5), rate["protocol"]


def test_all_protocols_agree_where_the_model_is_sure(
    runs: Path, endpoint: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    before = endpoint.stats().requests
    assert main(command(runs, endpoint, "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert [rate["protocol"] for rate in told["rates"]] == list(list_protocols())
    for rate in told["rates"]:
        assert rate["rate"]["value"] == rate["official"]["value"] == 0.5, rate["protocol"]
        assert rate["scored"] == rate["labelled"] == 6
    assert len(told["agreements"]) == 55
    assert {pair["kappa"]["value"] for pair in told["agreements"]} == {1.0}
    assert {pair["tau"] for pair in told["agreements"]} == {1.0}
    asked = endpoint.stats().requests - before
    assert asked == sum(rate["usage"]["calls"] for rate in told["rates"])
    assert main(command(runs, endpoint)) == 0  # all is there
    assert endpoint.stats().requests - before == asked
    page = capsys.readouterr().out
    assert ["webjudge", "6", "0.500"] in [line.split()[:3] for line in page.splitlines()]
    assert "Kendall's tau-b of the ranking of 2 agents" in page
    assert "WebJudge (arXiv 2504.01382), prill preset webjudge 1, prompts sha256:" in page


def test_folder_has_table_picture_sources_and_differences(runs: Path, endpoint: MockServer) -> None:
    assert main(command(runs, endpoint, "--protocols", "webjudge,webvoyager")) == 0
    folder = runs.parent / "out"
    svg = (folder / "protocols.svg").read_text()
    assert svg.startswith("<svg ") and "webvoyager" in svg and svg.count(", interval ") == 2
    words = (folder / "protocols.md").read_text()
    assert words.startswith("| protocol | scored | success |")
    assert "Source: MinorJerry/WebVoyager evaluation/auto_eval.py" in words
    assert "* 15 frames as in the authors' script" in words
    assert len(list(prill.read_verdicts(folder / "webjudge.jsonl"))) == 6


def test_frames_that_two_protocols_grade_are_planned_and_graded_once(
    runs: Path, endpoint: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("--protocols", "webjudge,webjudge-general")
    before = endpoint.stats().requests
    assert main(command(runs, endpoint, *names, "--dry-run", "--json")) == 0
    plan = json.loads(capsys.readouterr().out)
    assert endpoint.stats().requests == before
    # 6 goals, 18 frames and 6 verdicts; then 6 verdicts more
    assert (plan["calls"], plan["shared"], plan["images"]) == (36, 24, 18 + 18 + 18)
    assert plan["usd"] > 0
    assert plan["trajectories"] == 6 and plan["verdicts"] == 12
    assert main(command(runs, endpoint, *names, "--dry-run")) == 0
    assert "6 runs x 2 protocols: 12 verdicts to make, 0 done" in capsys.readouterr().out
    assert main(command(runs, endpoint, *names)) == 0
    assert endpoint.stats().requests - before == 36
    assert main(command(runs, endpoint, *names, "--dry-run")) == 0
    assert "0 calls: no model is called" in capsys.readouterr().out


def test_limit_and_budget_and_resume_work_as_for_score(runs: Path, endpoint: MockServer) -> None:
    names = ("--protocols", "agenttrek,webvoyager")
    assert main(command(runs, endpoint, *names, "--limit", "2")) == 0
    folder = runs.parent / "out"
    assert len(list(prill.read_verdicts(folder / "agenttrek.jsonl"))) == 2
    assert main(command(runs, endpoint, *names, "--budget-usd", "0.000001")) == 3
    verdicts = list(prill.read_verdicts(folder / "agenttrek.jsonl"))
    assert [v.unscored for v in verdicts[2:]] == ["budget"] * 4
    assert all(v.findings is None for v in verdicts[2:])  # nothing was asked: no label
    assert main(command(runs, endpoint, *names)) == 0
    assert {v.success for v in prill.read_verdicts(folder / "agenttrek.jsonl")} >= {True, False}


def test_unclear_replies_are_unscored_and_both_rates_are_printed(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with MockServer(unsuccessful=1.0) as server:
        assert main(command(runs, server, "--protocols", "agenttrek,aer-v")) == 3
    page = capsys.readouterr().out
    assert "Unscored by agenttrek: parse 6" in page
    # "unsuccessful" is a success by Online-Mind2Web's code, a failure by the paper's scripts
    lines = {line.split()[0]: line.split() for line in page.splitlines() if line.strip()}
    assert lines["agenttrek"][1:6] == ["0", "-", "-", "1.000", "6"]
    assert lines["aer-v"][1:6] == ["0", "-", "-", "0.000", "6"]


def test_retried_verdicts_are_asked_for_again_though_replies_are_kept(runs: Path) -> None:
    with MockServer(unsuccessful=1.0) as server:
        names = ("--protocols", "agenttrek")
        assert main(command(runs, server, *names)) == 3
        assert main(command(runs, server, *names)) == 3
        assert server.stats().requests == 6
        assert main(command(runs, server, *names, "--retry-unscored")) == 3
        assert server.stats().requests == 12


def test_stopped_run_says_so_and_shows_what_is_there(runs: Path, endpoint: MockServer) -> None:
    config = prill.ProtocolsConfig(
        trajectories=[runs],
        output=runs.parent / "out",
        model=prill.ModelConfig("gpt-4o", base_url=endpoint.base_url),
        protocols=["webvoyager", "agenttrek"],
    )

    async def stopped() -> prill.ProtocolsResult:
        stop = asyncio.Event()

        def after_two(protocol: str, done: int, expected: int) -> None:
            if done >= 2:
                stop.set()

        return await prill.compare_protocols_async(config, stop=stop, progress=after_two)

    result = asyncio.run(stopped())
    assert result.stopped
    assert result.rates[0].scored >= 2 and result.rates[1].scored == 0
    assert result.rates[1].rate.undefined and "undefined" not in result.svg()
    whole = prill.compare_protocols(config)
    assert not whole.stopped
    assert [rate.scored for rate in whole.rates] == [6, 6]


def test_result_in_python_has_tables(runs: Path, endpoint: MockServer) -> None:
    pytest.importorskip("pandas")
    result = prill.compare_protocols(
        prill.ProtocolsConfig(
            trajectories=[runs],
            output=runs.parent / "out",
            model=prill.ModelConfig("gpt-4o", base_url=endpoint.base_url),
            protocols=["uv", "agenttrek"],
        )
    )
    frame = result.to_pandas()
    assert list(frame["protocol"]) == ["uv", "agenttrek"]
    assert list(frame["rate"]) == [0.5, 0.5]
    (pair,) = result.agreements
    assert pair.kappa.value == 1.0 and pair.runs == 6
    assert "<svg" in result._repr_html_()


def test_agreement_is_of_the_runs_that_both_score() -> None:
    judge = EvaluatorInfo("protocol", "1")

    def made(*outcomes: bool | None) -> dict[str, Verdict]:
        return {
            str(i): Verdict(id=str(i), success=success, evaluator=judge)
            if success is not None
            else Verdict(id=str(i), unscored="parse", evaluator=judge)
            for i, success in enumerate(outcomes)
        }

    agents = {"0": "a", "1": "a", "2": "b", "3": "b", "4": "c"}
    verdicts = {
        "p": made(True, True, False, False, None),
        "q": made(True, False, False, False, True),
    }
    [pair] = measure_agreements(verdicts, {id: id for id in agents}, agents)
    assert (pair.runs, pair.agents) == (4, 2)
    assert pair.same.value == 0.75
    assert pair.kappa.value == pytest.approx(0.5)
    assert pair.tau == 1.0
    [alone] = measure_agreements({"p": made(None), "q": made(True)}, {"0": "0"}, {})
    assert alone.kappa.undefined and alone.tau is None


def test_bad_input_is_told(runs: Path, endpoint: MockServer) -> None:
    with pytest.raises(UsageError, match="unknown protocol 'webjudgee'"):
        prill.ProtocolsConfig(
            trajectories=[runs], output="o", model="m", protocols=["webjudgee"]
        ).check()
    with pytest.raises(UsageError, match="listed twice"):
        prill.ProtocolsConfig(
            trajectories=[runs], output="o", model="m", protocols=["uv", "uv"]
        ).check()
    assert main(["protocols", str(runs), "-o", str(runs), "--model", "m"]) == 2


def test_one_protocol_is_a_judge_of_prill_score(
    runs: Path, endpoint: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(runs.parent / "v.jsonl")
    judge = ("--judge", "protocol", "--judge.protocol", "webvoyager", "--model", "m")
    assert main(["score", str(runs), "-o", out, *judge, "--base-url", endpoint.base_url]) == 0
    assert [official_label(v) for v in prill.read_verdicts(out)].count(True) == 3
    capsys.readouterr()
    assert main(["show", "0b", "--verdicts", out]) == 0
    assert "by the authors' own rule: success" in capsys.readouterr().out


def test_labels_show_how_far_each_protocol_can_be_trusted(
    runs: Path, endpoint: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    # The labels say what the model says but for one run, and one is undecided.
    labels = [
        LabelRecord(id=f"{task}{agent}", success=agent == "b")
        for task in range(3)
        for agent in ("a", "b")
    ]
    labels[1] = LabelRecord(id="0b", success=False)
    labels[5] = LabelRecord(id="2b", success=None, undecided="unsure")
    prill.write_labels(runs.parent / "l.jsonl", labels)
    more = ("--protocols", "webjudge,webvoyager", "--labels", str(runs.parent / "l.jsonl"))
    assert main(command(runs, endpoint, *more)) == 0
    page = " ".join(capsys.readouterr().out.split())
    # 3 right failures, 1 right success, 1 wrong success: kappa (.8 - .56) / .44
    assert "Agreement with the labels (human)" in page
    assert "webvoyager 5 0 0.800 0.545 " in page
    assert "| webjudge | 5 | 0.800 | 0.545 |" in (runs.parent / "out/protocols.md").read_text()
    assert main(command(runs, endpoint, *more, "--json")) == 0
    told = json.loads(capsys.readouterr().out)["with_labels"]
    assert [one["protocol"] for one in told] == ["webjudge", "webvoyager"]
    assert told[0]["kappa"]["value"] == pytest.approx((0.8 - 0.56) / 0.44)
    assert told[0]["kappa"]["low"] < told[0]["kappa"]["value"] < told[0]["kappa"]["high"]
    # a broken or ambiguous label file is refused before any call
    both = [*labels, LabelRecord(id="0a", success=True, source="oracle")]
    prill.write_labels(runs.parent / "l.jsonl", both)
    before = endpoint.stats().requests
    assert main(command(runs, endpoint, *more, "--no-resume")) == 2
    assert endpoint.stats().requests == before
    assert main(command(runs, endpoint, *more, "--source", "oracle")) == 0
    assert "webjudge 1 0 0.000" in " ".join(capsys.readouterr().out.split())
