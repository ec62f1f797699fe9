"""The reward service under what strangers and judges can do: peak memory, the worst wait for
/healthz, seconds to its end.

    python benchmarks/service_soak.py                  # every case, and 20,000 distinct requests
    python benchmarks/service_soak.py --minutes 30     # a soak with a tenth of each fault; nothing
    may be lost, nothing 0

A case has a service process of its own. /healthz is asked by another process, twenty times a
second, so that its figure is that of the service. In the soak, a tenth of the requests each is: at
a judge that hangs, that crashes, that gives garbage, of clients that send slowly, that hang up, and
floods of fifty at once; the rest is plain. Lost is a request that was sent whole, by a client that
stayed, and has no answer; every verdict is compared with the truth.
"""

import argparse
import asyncio
import base64
import io
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prill.types import EvaluatorInfo, Trajectory, Verdict

INFO = EvaluatorInfo("faulty", "1")
MAX_MB, MAX_HEALTH_SECONDS, GRACE = 400.0, 0.5, 5.0
MAX_STUBBORN = 16  # judgements of a soak that never end: one for each slot
MAX_SECONDS_AFTER = 60.0  # that a client goes on to be refused after the soak's time


class Faulty:
    """The judge of the service, whose behaviour is the first word of the goal."""

    info, concurrency = INFO, 64

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return [seen.screenshot for seen in trajectory.observations if seen.screenshot]

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        word = trajectory.task.goal.partition(" ")[0]
        await asyncio.sleep(0.02)
        if word == "hang":
            await asyncio.Event().wait()
        if word == "stubborn":
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    continue
        if word == "crash":
            raise random.choice(
                [KeyError("words"), SystemExit(3), KeyboardInterrupt(), RuntimeError("words")]
            )
        good = word != "failure"
        verdict = Verdict(
            id=trajectory.id,
            success=good,
            score=0.9 if good else 0.1,
            reason="words " * 50,
            evaluator=INFO,
        )
        if word == "garbage":
            return random.choice(
                [replace(verdict, reason="\ud800"), replace(verdict, id="another"), None]
            )  # type: ignore[return-value]
        return verdict


def ask_health(url: str, ended: Any, worst: Any, lag: Any) -> None:
    """Asks until it is told to end, and keeps the longest wait; `lag` is how much too late this
    process itself woke up.
    """
    while not ended.is_set():
        began = time.perf_counter()
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=60) as answer:
                answer.read()
        except OSError:
            pass
        worst.value = max(worst.value, time.perf_counter() - began)
        slept = time.perf_counter()
        time.sleep(0.05)
        lag.value = max(lag.value, time.perf_counter() - slept - 0.05)


def status(pid: int, name: str) -> float:
    """A line of /proc/PID/status, in MB."""
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(lines[name].split()[0]) * 1024 / 1e6


@dataclass
class Run:
    """A service and what is measured of it."""

    process: subprocess.Popen[str]
    url: str
    worst: Any
    lag: Any

    @property
    def peak(self) -> float:
        return status(self.process.pid, "VmHWM")

    def end(self) -> float:
        """Returns the seconds from SIGTERM to the end of the process."""
        began = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10 * GRACE)
        return time.perf_counter() - began


@contextmanager
def service(*options: str) -> Iterator[Run]:
    command = [
        sys.executable,
        "-m",
        "prill",
        "serve",
        "--judge",
        f"{__file__}:Faulty",
        "--port",
        "0",
        "--json",
    ]
    command += ["--grace", str(GRACE), *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    context = multiprocessing.get_context("spawn")
    ended, worst, lag = context.Event(), context.Value("d", 0.0), context.Value("d", 0.0)
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    prober = context.Process(target=ask_health, args=(url, ended, worst, lag), daemon=True)
    prober.start()
    try:
        yield Run(process, url, worst, lag)
    finally:
        ended.set()
        prober.join(10)
        process.kill()
        process.wait()


def item(goal: str, id: str, **more: Any) -> dict[str, Any]:
    return {"trajectory": {"id": id, "task": {"goal": goal}, **more}}


def noise(size: int) -> str:
    """A picture of about 3 * size * size bytes, as base64."""
    from PIL import Image

    out = io.BytesIO()
    Image.frombytes("RGB", (size, size), os.urandom(3 * size * size)).save(
        out, "PNG", compress_level=1
    )
    return base64.b64encode(out.getvalue()).decode()


def one_picture() -> Iterator[tuple[str, bytes]]:
    picture = noise(1290)
    step = {"observation": {"screenshot": "shot"}, "action": {"kind": "click"}}
    for number in range(3):
        body = {
            "items": [
                {**item("success", str(number), steps=[step] * 199), "images": {"shot": picture}}
            ]
        }
        yield "/v1/score", json.dumps(body).encode()


def large_jobs() -> Iterator[tuple[str, bytes]]:
    for number in range(20):
        yield (
            "/v1/jobs",
            json.dumps(
                {"items": [item("hang", str(number), final={"text": "x" * 20_000_000})]}
            ).encode(),
        )


def long_ids() -> Iterator[tuple[str, bytes]]:
    for number in range(60):
        yield (
            "/v1/score",
            json.dumps({"items": [item("success", f"{number}" + "i" * 5_000_000)]}).encode(),
        )


def empty_items() -> Iterator[tuple[str, bytes]]:
    for unit in (
        b"{}",
        b'{"trajectory":{"metadata":{"":0}}}',
        b'{"trajectory":[[],[]]}',
        b'""',
        b"0",
    ):
        yield (
            "/v1/score",
            b'{"items":[' + b",".join([unit] * (30_000_000 // (len(unit) + 1))) + b"]}",
        )


def large_texts() -> Iterator[tuple[str, bytes]]:
    """At once: each is small enough, all together are not."""
    for number in range(30):
        yield (
            "/v1/score",
            json.dumps(
                {"items": [item("success", str(number), final={"text": "x" * 15_000_000})]}
            ).encode(),
        )


def many_values() -> Iterator[tuple[str, bytes]]:
    """As many as are allowed, in each of several requests."""
    for number in range(10):
        record = item("success", str(number), metadata={"a": [{"": 0}] * 190_000})
        yield "/v1/score", json.dumps({"items": [record]}, separators=(",", ":")).encode()


def long_answers() -> Iterator[tuple[str, bytes]]:
    picture = noise(1000)
    seen = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"image_url": f"data:image/png;base64,{picture}"},
    }
    for number in range(20):
        body = {
            "responses_create_params": {"input": f"success {number}"},
            "response": {"output": [seen]},
        }
        yield "/verify", json.dumps(body).encode()


CASES: dict[str, tuple[Callable[[], Iterator[tuple[str, bytes]]], int]] = {
    "one picture of 5 MB named by 199 steps": (one_picture, 1),
    "20 jobs of 20 MB at a judge that hangs": (large_jobs, 1),
    "60 ids of 5 MB": (long_ids, 2),
    "30 MB of empty items": (empty_items, 2),
    "30 texts of 15 MB": (large_texts, 6),
    "400,000 values a request": (many_values, 4),
    "rows of 4 MB that come back": (long_answers, 6),
}


async def send_all(url: str, requests: Iterator[tuple[str, bytes]], at_once: int) -> Counter[int]:
    import aiohttp

    statuses: Counter[int] = Counter()

    async def client(session: aiohttp.ClientSession) -> None:
        for path, body in requests:
            async with session.post(
                url + path, data=body, headers={"content-type": "application/json"}
            ) as answer:
                await answer.read()
                statuses[answer.status] += 1

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:
        await asyncio.gather(*(client(session) for _ in range(at_once)))
    return statuses


def distinct(count: int) -> Iterator[tuple[str, bytes]]:
    for number in range(count):
        yield (
            "/rm",
            json.dumps(
                {"response": "r", "label": item("success", f"r{number}")["trajectory"]}
            ).encode(),
        )


@dataclass
class Seen:
    """The responses that the clients of a soak test got."""

    answers: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    memory: list[float] = field(default_factory=list)


class Soak:
    """Clients that ask one request after another, until the time is over."""

    def __init__(self, run: Run, minutes: float, share: float) -> None:
        self.run, self.seen, self.numbers = run, Seen(), iter(range(10**12))
        self.until, self.seconds, self.share = time.monotonic() + 60 * minutes, 60 * minutes, share
        self.stubborn = 0
        self.kinds: dict[str, Callable[[Any], Awaitable[None]]] = {
            "hang": self.hang,
            "crash": self.crash,
            "garbage": self.garbage,
            "slow": self.slow,
            "gone": self.gone,
            "flood": self.flood,
        }

    async def client(self, session: Any) -> None:
        plain = max(0.0, 1 - self.share * len(self.kinds))
        weights = [plain, *[self.share] * len(self.kinds)]
        while time.monotonic() < self.until:
            kind = random.choices(["plain", *self.kinds], weights)[0]
            try:
                await (self.plain(session) if kind == "plain" else self.kinds[kind](session))
                self.seen.answers[kind] += 1
            except Exception as error:  # noqa: BLE001 - it is what is counted
                self.seen.problems[f"{kind}: lost ({type(error).__name__})"] += 1

    async def watch(self) -> None:
        while time.monotonic() < self.until:
            self.seen.memory.append(status(self.run.process.pid, "VmRSS"))
            await asyncio.sleep(self.seconds / 10)

    async def ask(self, session: Any, path: str, body: object) -> tuple[int, Any]:
        async with session.post(self.run.url + path, json=body) as answer:
            return answer.status, await answer.json()

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.seen.problems[problem] += 1

    async def plain(self, session: Any) -> None:
        number = next(self.numbers)
        truth = number % 3 != 0
        more = (
            {"final": {"screenshot": f"data:image/png;base64,{noise(200)}"}}
            if number % 10 == 0
            else {}
        )
        label = item("success" if truth else "failure", f"p{number}", **more)["trajectory"]
        while True:
            code, reward = await self.ask(session, "/rm", {"response": "r", "label": label})
            if code == 200:
                self.expect(reward == float(truth), f"a wrong reward: {reward}")
                return
            self.expect(code == 503, f"plain: status {code}")
            if code != 503 or time.monotonic() > self.until + MAX_SECONDS_AFTER:
                self.expect(code != 503, "plain: still refused long after the end")
                return
            await asyncio.sleep(0.5)

    async def beside(self, session: Any, word: str, reason: str) -> None:
        """A fault beside a good item: the one is unscored, the other has its verdict."""
        number = next(self.numbers)
        code, body = await self.ask(
            session,
            "/v1/score",
            {"items": [item(word, f"{word}{number}"), item("success", f"g{number}")]},
        )
        if code == 503:
            self.seen.answers["503"] += 1
            return
        bad, good = body["results"]
        self.expect(
            (bad["reward"], bad["unscored"]) == (None, reason),
            f"{word}: {bad['reward']} {bad['unscored']}",
        )
        self.expect(good["reward"] == 1.0, f"beside {word}: {good['reward']} {good['unscored']}")

    async def hang(self, session: Any) -> None:
        # Some refuse to end even when they are cancelled. The service holds four for each slot, and
        # then begins no other.
        stubborn = self.stubborn < MAX_STUBBORN and random.random() < 0.02
        self.stubborn += stubborn
        await self.beside(session, "stubborn" if stubborn else "hang", "timeout")

    async def crash(self, session: Any) -> None:
        await self.beside(session, "crash", "transport")

    async def garbage(self, session: Any) -> None:
        await self.beside(session, "garbage", "transport")

    async def connect(self, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.run.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = [
            "POST /rm HTTP/1.1",
            "Host: localhost",
            "Content-Type: application/json",
            "Connection: close",
        ]
        writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode())
        return reader, writer

    async def slow(self, session: Any) -> None:
        """Either it is all there in the end, and answered, or the connection ends with 408."""
        number, patient = next(self.numbers), random.random() < 0.5
        body = json.dumps(
            {"response": "r", "label": item("success", f"s{number}")["trajectory"]}
        ).encode()
        reader, writer = await self.connect(body)
        for byte in body[:20]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)
        if patient:
            writer.write(body[20:])
        answer = await asyncio.wait_for(reader.read(), 120)
        writer.close()
        right = (
            answer.endswith(b"1.0") or answer.startswith(b"HTTP/1.1 503")
            if patient
            else answer.startswith(b"HTTP/1.1 408")
        )
        self.expect(right, f"slow: {answer[:20]!r}")

    async def gone(self, session: Any) -> None:
        number = next(self.numbers)
        body = json.dumps(
            {"response": "r", "label": item("success", f"x{number}")["trajectory"]}
        ).encode()
        _, writer = await self.connect(body)
        writer.write(body)
        await writer.drain()
        writer.transport.abort()

    async def flood(self, session: Any) -> None:
        number = next(self.numbers)
        labels = [item("success", f"f{number}-{i}")["trajectory"] for i in range(50)]
        asked = [self.ask(session, "/rm", {"response": "r", "label": label}) for label in labels]
        for code, reward in await asyncio.gather(*asked):
            self.expect(code == 503 or (code, reward) == (200, 1.0), f"flood: {code} {reward}")


async def soak(run: Run, options: argparse.Namespace) -> Seen:
    import aiohttp

    work = Soak(run, options.minutes, options.faults)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=300), connector=connector
    ) as session:
        await asyncio.gather(work.watch(), *(work.client(session) for _ in range(options.clients)))
    return work.seen


def told(name: str, run: Run, more: str = "") -> bool:
    good = run.peak < MAX_MB and run.worst.value < MAX_HEALTH_SECONDS
    waits = (
        f"/healthz at worst {1000 * run.worst.value:.0f} ms (the machine itself: "
        f"{1000 * run.lag.value:.0f} ms)"
    )
    print(f"{name}: peak {run.peak:.0f} MB, {waits}{more}", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, help="soak for so long instead")
    parser.add_argument(
        "--faults",
        type=float,
        default=0.1,
        help="share of the requests that each fault has in the soak",
    )
    parser.add_argument("--clients", type=int, default=32, help="of the soak")
    parser.add_argument("--requests", type=int, default=20_000, help="distinct ones")
    options = parser.parse_args()
    good = []
    if options.minutes:
        with service(
            "--judge-timeout",
            "5",
            "--request-timeout",
            "60",
            "--slime-timeout",
            "60",
            "--body-timeout",
            "15",
        ) as run:
            seen = asyncio.run(soak(run, options))
            good.append(told("soak", run))
            print(f"memory on the way: {', '.join(f'{size:.0f}' for size in seen.memory)} MB")
            print(f"asked: {dict(seen.answers)}")
            print(f"lost, wrong or 0 without a verdict: {dict(seen.problems) or 'nothing'}")
            seconds = run.end()
            print(f"SIGTERM to the end: {seconds:.1f} s, of {GRACE:g} s")
            good += [not seen.problems, seconds < GRACE + 1]
        return 0 if all(good) else 1
    for name, (requests, at_once) in CASES.items():
        with service("--request-timeout", "10") as run:
            statuses = asyncio.run(send_all(run.url, requests(), at_once))
            good.append(told(name, run, f", statuses {dict(statuses)}"))
            seconds = run.end()
            print(f"  SIGTERM to the end: {seconds:.1f} s, of {GRACE:g} s")
            good.append(seconds < GRACE + 1)
    with service() as run:
        statuses = asyncio.run(send_all(run.url, distinct(options.requests), 32))
        good.append(
            told(f"{options.requests:,} distinct requests", run, f", statuses {dict(statuses)}")
        )
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
