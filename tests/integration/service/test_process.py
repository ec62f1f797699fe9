"""The command as a process: its clients, its end, and connections that mean no good."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.errors import UsageError
from prill.evaluators.registry import JudgeConfig, make_judge
from prill.refine.rewards import Reward, RewardConfig
from prill.runs.serve import ServeConfig, make_served_reward
from prill.service import ServiceSpec, make_service, serve
from prill.service.server import make_server
from prill.types import Trajectory, Verdict
from tests.support.paths import SUPPORT
from tests.support.service.gate import Gate
from tests.support.service.visiting import answered

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


def post(url: str, body: object, timeout: float = 60) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def insisting(
    url: str, body: object, tries: int, waits: Callable[[int], float]
) -> tuple[Any, list[int]]:
    """As the trainers' clients do it: any status but 2xx is tried again. Their waits, a hundred
    times shorter.
    """
    statuses = []
    for attempt in range(tries):
        try:
            return post(url, body), [*statuses, 200]
        except urllib.error.HTTPError as error:
            statuses.append(error.code)
            error.close()
            time.sleep(waits(attempt) / 100)
    return None, statuses


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with serving("--judge", GATE, "--token-env", "SERVICE_TOKEN", SERVICE_TOKEN=TOKEN) as (_, url):
        yield url


def openrlhf(url: str, goal: str) -> tuple[Any, list[int]]:
    """Five tries, a second apart; then the reward stays None. It sends no headers, so the key is in
    the address.
    """
    body = {"query": ["pr"], "prompts": ["p"], "labels": [label(goal)]}
    return insisting(f"{url}/get_reward?key={TOKEN}&client=run7", body, 5, lambda attempt: 1)


def slime(url: str, goal: str) -> tuple[Any, list[int]]:
    """Ten tries, each wait twice as long up to 30 s; then it raises."""
    body = {"prompt": "p", "response": "r", "label": label(goal)}
    return insisting(f"{url}/rm?key={TOKEN}", body, 10, lambda attempt: min(2.0**attempt, 30) / 10)


def label(goal: str) -> str:
    return json.dumps({"id": goal, "task": {"goal": goal}})


def test_trainers_clients_get_their_rewards(served: str) -> None:
    reward, _ = openrlhf(served, "success")
    assert (reward["rewards"], reward["scores"]) == ([1.0], [0.75])
    assert slime(served, "failure") == (0.0, [200])
    assert openrlhf(served, "timeout") == (None, [502] * 5)
    assert slime(served, "parse") == (None, [502] * 10)


def head(served: str, data: bytes, seconds: float = 60) -> bytes:
    host, port = served.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.sendall(data)
        return connection.recv(65_536)


def whole(served: str, data: bytes) -> bytes:
    """The answer of a server that closes the connection after it."""
    host, port = served.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_a_gigabyte_is_refused_unread(served: str) -> None:
    lines = (
        f"POST /rm?key={TOKEN} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    )
    assert head(served, lines.encode() + b"Content-Length: 1000000000\r\n\r\n{").startswith(
        b"HTTP/1.1 413"
    )


def test_strangers_are_refused_unread(served: str) -> None:
    lines = (
        "POST /rm HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
        "application/json\r\nContent-Length: 1000\r\n\r\n"
    )
    assert head(served, lines.encode()).startswith(b"HTTP/1.1 401")


def test_garbage_on_the_wire_is_400(served: str) -> None:
    status, headers, body = refusal(whole(served, b"\x16\x03\x01 nonsense\r\n\r\n"))
    assert (status, headers["connection"], body["code"]) == (400, "close", "http")


def refusal(answer: bytes) -> tuple[int, dict[str, str], dict[str, str]]:
    """Its status, its headers and what stands in its body, which every refusal has alike."""
    first, *lines = answer.partition(b"\r\n\r\n")[0].decode().splitlines()
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert headers["content-type"] == "application/json"
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert body.keys() == {"error"} and body["error"].keys() == {"code", "message"}
    return int(first.split()[1]), headers, body["error"]


def test_every_refusal_looks_alike(served: str) -> None:
    where = f"?key={TOKEN}"
    for start, status, code in (
        ("GET /healthz", 200, None),
        ("GET /metrics", 401, "token"),
        (f"GET /nowhere{where}", 404, "not_here"),
        (f"GET /rm{where}", 405, "not_here"),
        (f"POST /rm{where}", 415, "not_json"),
        (f"GET /v1/jobs/none{where}", 404, "no_job"),
    ):
        lines = (
            f"{start} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        answer = whole(served, lines.encode())
        assert answer.startswith(f"HTTP/1.1 {status}".encode()), start
        assert code is None or refusal(answer)[2]["code"] == code


async def test_a_crowd_is_turned_away_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """More connections than any setting allows get the refusal of all others, which says when to
    come again.
    """
    monkeypatch.setattr("prill.service.draining._SPARE", 1)
    spec = ServiceSpec(port=0, max_active=1, max_waiting=1)
    service = make_service(Reward(Gate()), spec)
    server = make_server(service, spec)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(server._serve([listening]))
        port = listening.getsockname()[1]
        asking = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connections, answers = [], []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            connections.append(writer)
            writer.write(asking)
            answers.append(await asyncio.wait_for(reader.read(65_536), 60))
            while len(answers) > 2 and b"\r\n\r\n{" not in answers[-1]:
                answers[-1] += await asyncio.wait_for(reader.read(65_536), 60)
        assert [answer.split()[1] for answer in answers] == [b"200", b"200", b"503", b"503"]
        for answer in answers[2:]:
            status, headers, body = refusal(answer)
            assert (status, headers["retry-after"], headers["connection"], body["code"]) == (
                503,
                "5",
                "close",
                "busy",
            )
        assert answered(service, "other", 503) == 2
        for writer in connections:
            writer.close()
        await asyncio.gather(
            *(writer.wait_closed() for writer in connections), return_exceptions=True
        )
        server.should_exit = True
        await task


async def test_an_error_of_its_own_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*asked: object, **named: object) -> str:
        raise KeyError("secret words of a page")

    monkeypatch.setattr("prill.service.routes.status_page", bug)
    spec = ServiceSpec(port=0)
    server = make_server(make_service(Reward(Gate()), spec), spec)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(server._serve([listening]))
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.getsockname()[1])
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        server.should_exit = True
        await task
    status, _, body = refusal(answer)
    assert (status, body["code"]) == (500, "internal") and b"secret words" not in answer


def test_errors_are_logged_without_words(caplog: pytest.LogCaptureFixture) -> None:
    spec = ServiceSpec(port=0)
    make_server(make_service(Reward(Gate()), spec), spec)
    words = "words of a page"
    try:
        raise KeyError(words.upper())
    except KeyError as error:
        logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=error)
    assert (
        "Exception in ASGI application: KeyError" in caplog.text
        and "test_process.py" in caplog.text
    )
    assert words.upper() not in caplog.text


async def test_half_a_request_line_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that does not begin a request in time is closed, also after a first request on
    it.
    """
    monkeypatch.setattr("prill.service.draining._HEAD_SECONDS", 0.2)
    monkeypatch.setattr("prill.service.draining._KEEP_ALIVE", 1)
    spec = ServiceSpec(port=0)
    server = make_server(make_service(Reward(Gate()), spec), spec)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(server._serve([listening]))
        port = listening.getsockname()[1]
        whole, half = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /healthz HTT"
        for sent, answered in ((half, 0), (whole + half, 1), (b"", 0)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            try:
                got = await asyncio.wait_for(reader.read(), 60)
            except ConnectionResetError:
                got = b""
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
            assert got.count(b"200 OK") == answered or not got
        server.should_exit = True
        await task


class Verbose(Gate):
    """Its answer is larger than what a connection holds on its way."""

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        return replace(await super().__call__(trajectory), reason="words " * 4_000_000)


@pytest.mark.parametrize("case", ["closed", "idle", "shutting down"])
async def test_unread_answers_hold_nothing(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does not read loses the connection: after the answer, when it is idle, or when the
    service ends.
    """
    monkeypatch.setattr("prill.service.draining._SEND_SECONDS", 0.2)
    monkeypatch.setattr("prill.service.draining._KEEP_ALIVE", 0.2 if case == "idle" else 75)
    spec = ServiceSpec(port=0)
    service = make_service(Reward(Verbose()), spec)
    server = make_server(service, spec)
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as mute:
        task = asyncio.create_task(server._serve([listening]))
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        mute.setblocking(False)
        await asyncio.get_running_loop().sock_connect(mute, listening.getsockname())
        body = json.dumps({"items": [{"trajectory": json.loads(label("success"))}]})
        lines = ["POST /v1/score HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        lines += [
            f"Content-Length: {len(body)}",
            "Connection: close" if case == "closed" else "X: y",
        ]
        await asyncio.get_running_loop().sock_sendall(
            mute, "\r\n".join([*lines, "", body]).encode()
        )
        async with asyncio.timeout(60):
            while not answered(service, "/v1/score", 200):
                await asyncio.sleep(0.01)
            assert server.server_state.connections, "most of the answer is still to be read"
            while case != "shutting down" and server.server_state.connections:
                await asyncio.sleep(0.01)
            server.handle_exit(signal.SIGTERM, None)
            await task
    assert server.should_exit and not server.force_exit


def test_term_answers_what_was_accepted() -> None:
    """Requests at the judge, in the queue and at the door are answered; what comes later gets 503;
    then the process ends.
    """
    judge = (
        "--judge",
        GATE,
        "--judge.seconds",
        "0.5",
        "--judge.concurrency",
        "4",
        "--max-active",
        "8",
    )
    with serving(*judge) as (process, url), ThreadPoolExecutor(16) as pool:

        def ask(number: int) -> Any:
            return post(
                f"{url}/rm",
                {"response": "r", "label": {"id": str(number), "task": {"goal": "success"}}},
            )

        answers = [pool.submit(ask, number) for number in range(16)]
        deadline = time.monotonic() + 60
        while True:  # until all are in
            with urllib.request.urlopen(f"{url}/metrics", timeout=60) as metrics:
                lines = dict(
                    line.rsplit(" ", 1)
                    for line in metrics.read().decode().splitlines()
                    if line[0] != "#"
                )
            inside, outside = (
                float(lines["prill_requests_inside"]),
                float(lines["prill_requests_outside"]),
            )
            done = float(lines.get('prill_requests_total{path="/rm",status="200"}', 0))
            if inside + outside + done == 16 or time.monotonic() > deadline:
                break
        assert outside > 0  # some had to wait outside
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert "shutting down" in process.stderr.readline()
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(99)
        assert (refused.value.code, refused.value.headers["retry-after"]) == (503, "30")
        refused.value.close()
        assert [answer.result(60) for answer in answers] == [1.0] * 16
        assert process.wait(60) == 0


def test_a_told_address_hears_signals() -> None:
    """Whoever waits for the address may send the signal at once: then it is an end in good order,
    too.
    """
    told = []

    def announce(url: str) -> None:
        told.append(url)
        assert callable(signal.getsignal(signal.SIGTERM)), "the signal would kill"
        signal.raise_signal(signal.SIGTERM)

    serve(Reward(Gate()), ServiceSpec(port=0), announce=announce)
    assert len(told) == 1


async def test_term_while_it_starts_is_an_end() -> None:
    """Some supervisor may send the signal before the server runs."""
    spec = ServiceSpec(port=0)
    server = make_server(make_service(Reward(Gate()), spec), spec)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.handle_exit(signal.SIGTERM, None)
        await asyncio.wait_for(server._serve([listening]), 60)
    assert server.should_exit and not server.force_exit


async def test_an_end_nobody_hears_of_is_one() -> None:
    """The terminal that the words of the end would go to may be closed."""

    def ending() -> None:
        raise OSError("no such terminal")

    spec = ServiceSpec(port=0)
    server = make_server(make_service(Reward(Gate()), spec), spec, ending)
    asyncio.get_running_loop().set_exception_handler(lambda loop, problem: None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.handle_exit(signal.SIGTERM, None)
        await asyncio.wait_for(server._serve([listening]), 60)
    assert server.should_exit


def test_one_file_makes_the_same_service(tmp_path: Path) -> None:
    (tmp_path / "service.toml").write_text(
        f'port = 1\nmax-items = 1\n\n[reward]\nkind = "score"\njudge = "{GATE}"\n'
    )
    with serving(str(tmp_path / "service.toml")) as (_, url):  # the port of the command goes before
        record = {"trajectory": json.loads(label("success"))}
        assert post(f"{url}/v1/score", {"items": [record]})["results"][0]["reward"] == 0.75
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(f"{url}/v1/score", {"items": [record] * 2})
        assert refused.value.code == 422
        refused.value.close()


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
    assert config == ServeConfig(reward=RewardConfig(judge=judge, kind="score"))
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
        (
            '[reward]\njudge = "vlm"\n[reward.watch]\nwindow = 3',
            "reward.watch.window: Expected `int` >= 30",
        ),
        ("[reward]\njudge = 3", "reward.judge: expected the name of a judge or a table"),
    ],
)
def test_wrong_files_are_named_with_their_key(table: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(table)
    with pytest.raises(UsageError) as raised:
        ServeConfig.load(path)
    assert str(raised.value).startswith(f"{path}: {words}")


async def test_a_script_serves_next_to_other_work(tmp_path: Path) -> None:
    """What the command serves, from Python, until an event is set."""
    stop, told = asyncio.Event(), asyncio.Queue[str]()
    config = ServeConfig(port=0, reward={"judge": GATE, "kind": "score"})
    running = asyncio.create_task(prill.serve_async(config, stop=stop, announce=told.put_nowait))
    url = await asyncio.wait_for(told.get(), 60)
    record = {"items": [{"trajectory": json.loads(label("success"))}]}
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
        (("--judge", "self-report", "--kind", "nice"), "unknown kind of reward 'nice'"),
        (("--judge", "self-report", "--lenght-penalty", "1"), "(did you mean '--length-penalty'?)"),
        (
            ("--judge", "self-report", "--model", "m"),
            "judge 'self-report' does not call a model; leave it out (--model)",
        ),
        (
            ("--judge", "self-report", "--frames", "3"),
            "--frames: judge 'self-report' has no such option",
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
