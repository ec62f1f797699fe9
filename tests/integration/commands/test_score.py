"""`prill score` as a user meets it: exit codes, messages, resume, and one clear error for each kind
of bad input.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from prill import __version__
from prill.cli.commands import COMMANDS, GROUPS
from prill.io.store import read_verdicts
from prill.models.flow_control import CircuitBreaker
from prill.testing import MockServer
from tests.support.commands.command import Prill, environment, write_trajectories
from tests.support.commands.endpoint import Endpoint


@pytest.fixture(scope="module")
def server() -> object:
    with MockServer() as running:
        yield running


def words(server: MockServer, *more: object, evaluator: str = "modular") -> tuple[object, ...]:
    return (
        "-o",
        "v.jsonl",
        "--judge",
        evaluator,
        "--model",
        "mock",
        "--model.base-url",
        server.base_url,
        *more,
    )


def one_error(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Exit code 2, nothing on stdout, and a single line of message that holds all parts."""
    assert result.returncode == 2, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("prill score:")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in lines[0]


def test_score_all_scored_exits_0(prill: Prill, server: MockServer, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 30)
    result = prill("score", "t.jsonl", *words(server, "--json"))
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert (summary["success"], summary["failure"], summary["unscored"]) == (10, 20, {})
    assert "10 success, 20 failure, 0 unscored" in result.stderr
    verdicts = {v.id: v for v in read_verdicts(tmp_path / "v.jsonl")}
    assert all(verdicts[f"t{i}"].success == (i % 3 == 0) for i in range(30))
    again = json.loads(prill("score", "t.jsonl", *words(server, "--json")).stdout)
    assert (again["skipped"], again["usage"]["calls"]) == (30, 0)


def test_score_some_unscored_exits_3(prill: Prill, server: MockServer, tmp_path: Path) -> None:
    path = write_trajectories(tmp_path / "t.jsonl", 3)
    with path.open("a") as file:
        file.write('{"id": "x", "task": {"goal": "g"}}\n{"id": "y", "task": {"goal": 1}}\n')
    result = prill("score", "t.jsonl", *words(server, "--judge.captioner", "given"))
    assert result.returncode == 3, result.stderr
    assert "no_evidence 1" in result.stderr
    assert "t.jsonl:5: Expected `str`, got `int` - at `$.task.goal`" in result.stderr


def test_plan_makes_no_call_and_no_file(prill: Prill, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 10)
    plan = ("--judge", "modular", "--model", "gpt-4o-mini", "--dry-run", "-o", "v.jsonl")
    result = prill("score", "t.jsonl", *plan, "--json")
    found = json.loads(result.stdout)
    assert (result.returncode, found["calls"], found["trajectories"]) == (0, 10, 10)
    assert found["usd"] == pytest.approx(
        found["prompt_tokens"] * 0.15e-6 + found["completion_tokens"] * 0.6e-6
    )
    assert not (tmp_path / "v.jsonl").exists()
    assert "10 calls" in prill("score", "t.jsonl", *plan).stdout
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text("{}")
    own = prill(
        "score", "t.jsonl", *("local:own" if word == "gpt-4o-mini" else word for word in plan)
    )
    assert "cost: about $0.00" in own.stdout, own.stderr


def test_endpoint_gone_exits_4_resumable(
    prill: Prill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "prill.models.transport.CircuitBreaker",
        lambda place, patience, timeout: CircuitBreaker(place, 0.05, timeout),
    )
    write_trajectories(tmp_path / "t.jsonl", 40)

    def answer(text: str) -> str | int:
        return (
            502 if is_dead and len(endpoint.turns) > 10 else "Thoughts: so it is\nStatus: success"
        )

    is_dead = True
    with Endpoint(answer) as endpoint:
        command = (
            "score",
            "t.jsonl",
            "-o",
            "v.jsonl",
            "--judge",
            "modular",
            "--judge.captioner",
            "given",
            *endpoint.words,
        )
        gone = prill(*command, "--concurrency", "2")
        asked, kept = len(endpoint.turns), len(list(read_verdicts(tmp_path / "v.jsonl")))
        is_dead = False
        rest = prill(*command, "--retry-unscored")
    assert gone.returncode == 4
    assert "has not responded for" in gone.stderr
    assert (
        "run the same command again to resume; --retry-unscored retries what failed in the meantime"
        in gone.stderr
    )
    assert kept >= 10
    assert (rest.returncode, len(endpoint.turns) - asked) == (0, 30)
    assert all(verdict.success for verdict in read_verdicts(tmp_path / "v.jsonl"))


def test_ctrl_c_finishes_running_calls(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 400)
    with MockServer(latency=0.3) as slow:
        command = [
            sys.executable,
            "-m",
            "prill",
            "score",
            "t.jsonl",
            *map(str, words(slow, "--concurrency", 8)),
        ]
        running = subprocess.Popen(
            command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment()
        )
        while (
            not (tmp_path / "v.jsonl").exists()
            or (tmp_path / "v.jsonl").read_bytes().count(b"\n") < 10
        ):
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
        asked = slow.stats().requests
    assert running.returncode == 130
    assert "finishing the calls in progress" in err
    assert "run the same command again to resume" in err
    assert len(list(read_verdicts(tmp_path / "v.jsonl"))) == asked < 400


class TestBadInput:
    def test_score_names_a_line_not_json(
        self, prill: Prill, server: MockServer, tmp_path: Path
    ) -> None:
        (tmp_path / "t.jsonl").write_text("id,goal\n1,buy\n")
        one_error(
            prill("score", "t.jsonl", *words(server)),
            "t.jsonl:1: not valid JSON",
            "1 more broken line",
        )

    def test_wrong_key_ends_the_run_unshown(self, prill: Prill, tmp_path: Path) -> None:
        write_trajectories(tmp_path / "t.jsonl", 5)
        with MockServer(refuse_key=True) as strict:
            result = prill(
                "score",
                "t.jsonl",
                *words(strict, "--concurrency", 1),
                OPENAI_API_KEY="sk-very-secret",
            )
            asked = strict.stats().requests
        one_error(result, "refused the key in $OPENAI_API_KEY")
        assert "very-secret" not in result.stderr
        assert asked <= 2, "every trajectory was tried with a key that is refused"

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("missing.png", "image {path} is missing"),
            ("truncated.png", "image {path} is truncated"),
            ("huge.png", "100 megapixels"),
            ("text.png", "not an image"),
            ("../outside.png", "leaves the folder"),
        ],
    )
    def test_bad_image_is_an_input_failure(
        self, prill: Prill, server: MockServer, tmp_path: Path, name: str, reason: str
    ) -> None:
        folder = tmp_path / "set"
        folder.mkdir()
        Image.effect_noise((300, 300), 50).save(folder / "good.png")
        (folder / "truncated.png").write_bytes((folder / "good.png").read_bytes()[:9000])
        (folder / "text.png").write_text("hello")
        if name == "huge.png":
            Image.new("1", (10_000, 10_000)).save(folder / name)
        write_trajectories(folder / "t.jsonl", 2, screenshot=name)
        rows = [json.loads(line) for line in (folder / "t.jsonl").read_text().splitlines()]
        rows[0]["final"]["screenshot"] = "good.png"
        (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        result = prill("score", "set/t.jsonl", *words(server, evaluator="vlm"))
        assert result.returncode == 3, result.stderr
        good, bad = sorted(read_verdicts(tmp_path / "v.jsonl"), key=lambda verdict: verdict.id)
        assert good.success
        assert bad.unscored == "input"
        assert reason.format(path=folder / name) in bad.reason
        assert bad.usage.calls == 0


def test_key_stays_out_of_files_and_output(
    prill: Prill, server: MockServer, tmp_path: Path
) -> None:
    write_trajectories(tmp_path / "t.jsonl", 2)
    result = prill(
        "score",
        "t.jsonl",
        *words(server, "--model.api-key-env", "JUDGE_KEY", "--json"),
        JUDGE_KEY="sk-hush",
    )
    written = "".join(path.read_text() for path in tmp_path.iterdir() if path.is_file())
    assert "sk-hush" not in result.stdout + result.stderr + written
    assert result.returncode == 0


def test_help_lists_every_command_once_by_groups(prill: Prill) -> None:
    shown = prill("--help").stdout
    groups = [
        line.partition(":")[0] for line in shown.splitlines() if line.partition(":")[0] in GROUPS
    ]
    assert groups == list(GROUPS)
    listed = [line.strip().split("  ")[0] for line in shown.splitlines() if line.startswith("  ")]
    assert len(listed) == len(set(listed))
    assert set(listed) >= {*COMMANDS, "score", "agree", "rollout", "convert"}
    for verb in ("score", "agree", "rollout", "convert"):
        assert prill(verb, "--help").returncode == 0
    assert prill("--version").stdout == f"prill {__version__}\n"
    assert (prill().returncode, prill().stdout) == (2, shown)


def test_an_unknown_command_names_the_nearest(prill: Prill) -> None:
    done = prill("scoer", "t.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "prill: unknown command 'scoer' (did you mean 'score'?); prill --help lists the commands\n"
    )


def test_help_loads_no_parser_and_no_registry() -> None:
    program = (
        "import sys\nfrom prill.cli import main\nmain(['--help'])\nprint(*sys.modules, "
        "file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stderr.split()
    assert not {
        "prill.cli.derive",
        "prill.config.registry",
        "prill.config.values",
        "prill.evaluators.scoring.scorer",
    } & set(loaded)
