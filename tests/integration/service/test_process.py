"""The command as a process: its clients, its limits, and its end."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.errors import UsageError
from prill.evaluators.registry import JudgeConfig, make_judge
from prill.refine.rewards import Reward, RewardConfig, RewardSpec
from prill.refine.rewards.service import ServiceSpec, make_service, serve
from prill.refine.rewards.service.serving import ServeConfig, make_served_reward, make_server
from tests.support.paths import SUPPORT
from tests.support.service.gate import Gate
from tests.support.service.visiting import item, run

GATE = f"{SUPPORT / 'service/gate.py'}:Gate"
TOKEN = "correct-horse-battery"


@contextmanager
def serving(*options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "prill", "serve", *options, "--port", "0", "--json"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout and process.stderr
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, json.loads(line)["url"]
    finally:
        process.kill()
        process.communicate()


def post(url: str, body: object) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def status(url: str, body: object) -> int:
    try:
        post(url, body)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    return 200


def metric(url: str, name: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    found = [line.split()[-1] for line in lines if line.startswith(f"{name} ")]
    return float(found[0]) if found else 0.0


def test_bad_requests_are_refused_unread() -> None:
    with serving("--judge", GATE, "--token-env", "T", T=TOKEN) as (_, url):
        body = {"prompt": "p", "response": "r", "label": json.dumps(run("timeout"))}
        assert status(f"{url}/rm?key={TOKEN}", body) == 502, "trainers try it again"
        host, port = url.removeprefix("http://").split(":")
        for key, length, code in ((TOKEN, 10**9, b"413"), ("wrong", 1000, b"401")):
            head = f"POST /rm?key={key} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n"
            with socket.create_connection((host, int(port)), timeout=60) as connection:
                connection.sendall(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
                assert connection.recv(65_536).startswith(b"HTTP/1.1 " + code), "refused unread"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(
    "unit", ["{}", '{"trajectory":{"metadata":{"":0}}}', '{"trajectory":{"a":[[],[]]}}']
)
def test_many_small_values_are_not_built(unit: str) -> None:
    body = b'{"items":[' + b",".join([unit.encode()] * (24_000_000 // (len(unit) + 1))) + b"]}"
    with serving("--judge", GATE) as (process, url):

        def peak() -> float:
            """The most memory so far, in MB."""
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if "VmHWM" in line) / 1000

        before = peak()
        assert status(f"{url}/v1/score", body) == 422
        assert peak() - before < 150


def test_term_answers_what_was_accepted() -> None:
    """Requests at the judge and those that wait are answered; what comes later gets no connection;
    then the process ends.
    """
    judge = ("--judge", GATE, "--judge.seconds", "2", "--judge.concurrency", "4")
    with serving(*judge) as (process, url), ThreadPoolExecutor(16) as pool:
        body = {"response": "r"}
        asked = [
            pool.submit(post, f"{url}/rm", body | {"label": run(id=str(i))}) for i in range(16)
        ]
        deadline = time.monotonic() + 60
        while metric(url, "prill_active") < 16 and time.monotonic() < deadline:
            pass
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None and "shutting down" in process.stderr.readline()
        with pytest.raises(urllib.error.URLError, match="refused"):
            post(f"{url}/rm", body | {"label": run(id="late")})
        assert [answer.result(60) for answer in asked] == [1.0] * 16
        assert process.wait(60) == 0


@pytest.mark.parametrize("state", ["idle", "hang", "stubborn", "thread", "body", "second"])
def test_term_ends_in_every_state(state: str) -> None:
    """At the end of the grace period, or at a second signal, whatever waits: who is still to be
    answered is told.
    """
    grace = "300" if state == "second" else "1"
    with serving("--judge", GATE, "--grace", grace) as (process, url):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            body = json.dumps({"items": [item("hang" if state in ("body", "second") else state)]})
            lines = ["POST /v1/score HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
            lines += [f"Content-Length: {len(body)}", "", body[:-5] if state == "body" else body]
            if state != "idle":
                connection.sendall("\r\n".join(lines).encode())
                wanted = "prill_active" if state == "body" else "prill_in_flight"
                while metric(url, wanted) < 1:
                    pass
            # connections are accepted in turn: once this is answered, the one above is no longer
            # in the backlog, where the end of the process would reset it
            metric(url, "prill_active")
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None and "shutting down" in process.stderr.readline()
            if state == "second":
                process.send_signal(signal.SIGINT)
            assert process.wait(25) == 0
            answer = connection.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 503") if state != "idle" else not answer
            assert (b"connection: close" in answer) is (state != "idle")


async def test_told_address_hears_signals() -> None:
    """Whoever waits for the address may send the signal at once: then it is an end in good order,
    too; and the terminal that the words of the end would go to may be closed.
    """
    told = []

    def announce(url: str) -> None:
        told.append(url)
        assert callable(signal.getsignal(signal.SIGTERM)), "the signal would kill"
        signal.raise_signal(signal.SIGTERM)

    def ending() -> None:
        raise OSError("no such terminal")

    asyncio.get_running_loop().set_exception_handler(lambda loop, problem: None)
    await serve(Reward(Gate()), ServiceSpec(port=0), announce=announce, ending=ending)
    assert len(told) == 1


async def test_term_while_it_starts_is_an_end() -> None:
    """Some supervisor may send the signal before the server runs."""
    spec = ServiceSpec(port=0)
    server = make_server(make_service(Reward(Gate()), spec), spec)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.handle_exit(signal.SIGTERM, None)
        await asyncio.wait_for(server._serve([listening]), 60)
    assert server.should_exit and not server.force_exit


def test_one_file_makes_the_same_service(tmp_path: Path) -> None:
    (tmp_path / "service.toml").write_text(
        f'port = 1\nmax-active = 1\n\n[reward]\nkind = "score"\njudge = "{GATE}"\n'
    )
    with serving(str(tmp_path / "service.toml")) as (_, url):  # the port of the command goes before
        assert post(f"{url}/v1/score", {"items": [item()]})["results"][0]["reward"] == 0.75
        assert status(f"{url}/v1/score", {"items": [item()] * 2}) == 422


@pytest.mark.parametrize(
    "words",
    [
        'judge = "modular"\ncaptioner = "text"\nmodel = "m"',
        'judge = {name = "modular", captioner = "text", model = "m"}',
        '[reward.judge]\nname = "modular"\ncaptioner = "text"\nmodel = "m"',
        'evaluator = "modular"\ncaptioner = "text"\nmodel = "m"',
        'name = "modular"\ncaptioner = "text"\nmodel = "m"',
    ],
    ids=["beside", "table", "section", "older", "judge file"],
)
def test_a_file_names_its_judge_in_any_of_its_forms(words: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(f'[reward]\nkind = "score"\n{words}\n')
    config = ServeConfig.load(tmp_path / "s.toml")
    judge = JudgeConfig("modular", captioner="text", model="m")
    assert config == ServeConfig(reward=RewardConfig(judge=judge, spec=RewardSpec(kind="score")))
    assert (
        make_served_reward(config).judge.info
        == make_judge("modular", captioner="text", model="m").info
    )


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            '[reward]\njudge = "vlm"\nevaluator = "modular"',
            "reward.evaluator: the judge is already named by judge",
        ),
        ('[reward]\nkind = "score"', "reward.judge is missing"),
        ("port = 1", "reward.judge is missing"),
        ('[reward]\njudge = {name = "vlm"}\nframes = 2', "reward.frames: unknown option"),
        ("[reward]\njudge = 3", "reward.judge: expected the name of a judge or a table"),
    ],
)
def test_wrong_files_are_named_with_their_key(table: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(table)
    with pytest.raises(UsageError) as raised:
        ServeConfig.load(path)
    assert str(raised.value).startswith(f"{path}: {words}")


async def test_script_serves_next_to_other_work(tmp_path: Path) -> None:
    """What the command serves, from Python, until an event is set."""
    stop, told = asyncio.Event(), asyncio.Queue[str]()
    config = ServeConfig(spec=ServiceSpec(port=0), reward={"judge": GATE, "kind": "score"})
    running = asyncio.create_task(prill.serve_async(config, stop=stop, announce=told.put_nowait))
    url = await asyncio.wait_for(told.get(), 60)
    record = {"items": [item()]}
    answer = await asyncio.to_thread(post, f"{url}/v1/score", record)
    with serving("--judge", GATE, "--kind", "score") as (_, other):
        assert await asyncio.to_thread(post, f"{other}/v1/score", record) == answer
    stop.set()
    await asyncio.wait_for(running, 60)
    with pytest.raises(OSError):
        await asyncio.to_thread(post, f"{url}/v1/score", record)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--judge is missing"),
        (("--judge", "self-report", "--host", "0.0.0.0"), "(--token-env, --token-file)"),
        (("--judge", "self-report", "--media-root", "nowhere"), "no such folder (--media-root)"),
        (("--judge", "self-report", "--request-timeout", "-1"), "--request-timeout: Expected"),
        (("--judge", "modular", "--model", "m"), "captioner is missing"),
        (("nowhere.toml",), "nowhere.toml: No such file"),
        (
            ("--judge", "vote", "--judge.judges", "modular"),
            "cannot be set here; write both in a file",
        ),
        (
            ("--judge", "self-report", "--judge.frames", "3"),
            "--judge.frames: judge 'self-report' has no such option",
        ),
    ],
)
def test_bad_usage_is_one_clear_error(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from prill.cli import main

    assert main(["serve", *options]) == 2
    assert words in capsys.readouterr().err


def test_a_taken_port_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    from prill.cli import main

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--judge", "self-report", "--port", port]) == 2
    assert "use port 0 for any" in capsys.readouterr().err
