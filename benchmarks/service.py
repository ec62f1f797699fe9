"""Tests the reward service under load: many clients, a slow judge, faults, and a shutdown.

    python benchmarks/service.py --clients 256 --requests 20000 --concurrency 64

Clients ask /rm one request after another, as slime does. The limit is what the judge can do:
concurrency divided by its latency. Printed are the share of that limit, the latencies beside those
that the queue explains (clients divided by concurrency, times the latency), the memory at the
start, in the middle and at the end, and whether every answer was the right one. With `--faults 0.1`
a tenth of the judge's answers are errors, of which no call is tried again by the judge itself; with
`--term` the service gets SIGTERM in the middle: then every request that was accepted must have its
answer; a client may still send its next one on a connection that is closing.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from prill.testing import MockServer


@dataclass
class Outcome:
    """The responses that the clients got."""

    seconds: list[float] = field(default_factory=list)
    right: int = 0
    wrong: int = 0
    zero_without_verdict: int = 0
    refused: int = 0  # 502: the judge failed, and the client asks again
    turned_away: int = 0  # no connection after SIGTERM
    dropped: int = 0  # never answered, or sent on a connection that was just closing
    memory: list[float] = field(default_factory=list)
    cpu: float = 0.0  # seconds of the service, until the last request was asked


def cpu(pid: int) -> float:
    """Returns the CPU seconds so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """Returns the resident memory in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def load(
    url: str, process: subprocess.Popen[str], options: argparse.Namespace
) -> tuple[Outcome, float]:
    started = cpu(process.pid)
    outcome, numbers, ended = Outcome(), iter(range(options.requests)), asyncio.Event()
    marks = {options.requests // 100, options.requests // 2, options.requests - 1}

    async def client(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            if number in marks:
                outcome.memory.append(memory(process.pid))
                outcome.cpu = cpu(process.pid) - started
            if options.term and number == options.requests // 2:
                process.send_signal(signal.SIGTERM)
            truth = number % 3 != 0
            page = f"Order {number}. truth={'success' if truth else 'failure'}"
            label = {
                "id": f"r{number}",
                "task": {"goal": f"Buy product {number}"},
                "final": {"text": page},
            }
            while True:
                began = time.perf_counter()
                try:
                    async with session.post(
                        f"{url}/rm", json={"response": "r", "label": label}
                    ) as answer:
                        body = await answer.json()
                        status = answer.status
                except aiohttp.ClientConnectorError:
                    ended.set()
                    outcome.turned_away += 1
                    return
                except aiohttp.ClientError:
                    # A connection that was idle when the service ended took no request along; any
                    # other one did.
                    outcome.turned_away += ended.is_set()
                    outcome.dropped += not ended.is_set()
                    return
                if status == 200:
                    outcome.seconds.append(time.perf_counter() - began)
                    outcome.right += body == float(truth)
                    outcome.wrong += body != float(truth)
                    break
                outcome.refused += 1
                outcome.zero_without_verdict += body == 0

    began = time.perf_counter()
    timeout, connector = aiohttp.ClientTimeout(total=300), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        await asyncio.gather(*(client(session) for _ in range(options.clients)))
    return outcome, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument(
        "--faults", type=float, default=0.0, help="share of the judge's answers that are errors"
    )
    parser.add_argument(
        "--term", action="store_true", help="SIGTERM when half of the requests are asked"
    )
    options = parser.parse_args()
    with MockServer(latency=options.latency, server_error=options.faults) as mock:
        judge = ["--judge", "modular", "--judge.captioner", "text", "--model", "mock"]
        judge += ["--model.retries", "0"]
        command = [
            sys.executable,
            "-m",
            "prill",
            "serve",
            *judge,
            "--concurrency",
            str(options.concurrency),
        ]
        process = subprocess.Popen(
            [*command, "--port", "0", "--json", "--model.base-url", mock.base_url],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            url = json.loads(process.stdout.readline())["url"]
            outcome, seconds = asyncio.run(load(url, process, options))
            calls = mock.stats().requests
            code: int | None = process.wait(60) if options.term else None
        finally:
            process.kill()
    times = sorted(outcome.seconds)
    limit = options.concurrency / options.latency
    judged = calls / seconds  # failed judgements take as long
    print(
        f"{len(times)} answered in {seconds:.1f} s by {options.clients} clients; {judged:.0f} "
        "judgements a second"
    )
    print(
        f"{judged / limit:.1%} of the limit ({limit:.0f}: {options.concurrency} at a time, "
        f"{options.latency:g} s each)"
    )
    explained = max(1.0, options.clients / options.concurrency) * options.latency
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    print(f"latency: p50 {p50:.2f} s, p99 {p99:.2f} s; the queue explains {explained:.2f} s")
    print(f"memory of the service: {', '.join(f'{size:.0f}' for size in outcome.memory)} MB")
    print(f"CPU of the service: {1000 * outcome.cpu / calls:.1f} ms a judgement")
    print(
        f"right {outcome.right}, wrong {outcome.wrong}, 0 without a verdict "
        f"{outcome.zero_without_verdict}"
    )
    print(f"never answered, or sent on a connection that was closing: {outcome.dropped}")
    print(
        f"asked again after 502: {outcome.refused}; calls of the judge: {calls}; turned away: "
        f"{outcome.turned_away}"
    )
    if options.term:
        print(f"the service ended with exit code {code}")


if __name__ == "__main__":
    main()
