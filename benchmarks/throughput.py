"""Measures prill's throughput against a mock endpoint that answers after 200 ms, compared with
other clients.

Run:   .venv/bin/python benchmarks/throughput.py [--only WAY,WAY] [--seconds 10] [--memory] [--out
FILE.json] Shows: verdicts a second, CPU a verdict of the client, of the processes it started, and
of the server, and peak memory; text
       only, and with a 1280x720 screenshot each; for prill, prill that keeps transcripts, prill
       with its requests carried by the SDK's asynchronous client ("over SDK"), a bare loop over
       aiohttp (the least that any client in Python can do), one over that client of the SDK, a
       plain loop, and a pool of 10 worker processes (how the original code did it). The server has
       one core and the client another; "2 cores" has two cores for the client and the server
       together, "1 core" has one for both. `ideal` is concurrency / latency. `by CPU` is what two
       cores of nobody else's could do by the CPU measured, if no process had to wait for another
       one: it holds on a busy machine too, where the verdicts a second mean nothing. Starting,
       which is part of the verdicts a second, is left out of the CPU a verdict and shown as
       seconds of CPU.
       --memory adds prill's peak memory for 1,000 and for 100,000 trajectories (about three minutes
       more).
Every row is measured in a process of its own, all in one run; on a busy machine only the ratios
mean anything.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

LATENCY = 0.2
MODEL = "mock"
_OURS = ("prill", "over SDK", "transcripts", "1 core", "2 cores")


def cores(way: str, apart: int) -> set[int]:
    """The cores of a program in this row; `apart`: its own one, where client and server have one
    each.
    """
    return {0} if way == "1 core" else {0, 1} if way == "2 cores" else {apart}


def write_input(folder: Path, count: int, images: bool) -> Path:
    """A trajectory file; each trajectory has a screenshot file of its own name (all are links to
    one picture).
    """
    picture = folder / "page.png"
    if images and not picture.exists():
        draw_page(picture)
    path = folder / "trajectories.jsonl"
    with path.open("w") as file:
        for i in range(count):
            final = {"caption": f"Page {i}: the order was placed. " * 8}
            if images:
                link = folder / f"{i}.png"
                if not link.exists():
                    os.link(picture, link)
                final["screenshot"] = link.name
            steps = [
                {"observation": {}, "action": {"kind": "click", "text": f"click button {k}"}}
                for k in range(5)
            ]
            task = {"id": f"task-{i % 100}", "goal": f"Place order number {i}", "platform": "web"}
            file.write(
                json.dumps(
                    {"id": str(i), "task": task, "steps": steps, "final": final, "answer": "Done"}
                )
                + "\n"
            )
    return path


def draw_page(path: Path) -> None:
    """A 1280x720 page with text and photographs' noise, about 300 kB as PNG."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("RGB", (1280, 720), "white")
    page.paste(Image.effect_noise((270, 320), 60), (860, 100))
    draw = ImageDraw.Draw(page)
    for line in range(34):
        draw.text(
            (20, 10 + 21 * line),
            f"{line}: a line of an order page, with words and numbers 12{line}.5",
            "black",
            ImageFont.load_default(16),
        )
    page.save(path)


def judge(base_url: str, concurrency: int, images: bool) -> object:
    """prill's evaluator on the mock endpoint."""
    import prill
    from prill.models.client import OpenAIModel

    model = OpenAIModel(MODEL, base_url=base_url, concurrency=concurrency)
    if images:
        return prill.judge("vlm", model=model)
    return prill.judge("modular", model=model, captioner="given")


def requests(path: Path, images: bool) -> list[dict[str, object]]:
    """What the other ways send: the same words and pictures, encoded beforehand and outside the
    measured time.
    """
    import base64

    rows = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        words = f"Judge this.\n{record['task']['goal']}\n" + "x" * 2200 + record["final"]["caption"]
        content: object = words
        if images:
            data = base64.b64encode(
                (path.parent / record["final"]["screenshot"]).read_bytes()
            ).decode()
            url = {"url": f"data:image/png;base64,{data}"}
            content = [{"type": "text", "text": words}, {"type": "image_url", "image_url": url}]
        rows.append(
            {
                "model": MODEL,
                "temperature": 0,
                "max_tokens": 1024,
                "messages": [{"role": "user", "content": content}],
            }
        )
    return rows


def with_prill(
    base_url: str, path: Path, concurrency: int, images: bool, *, transcripts: bool = False
) -> None:
    from prill.evaluators.scoring.scorer import score_files

    with tempfile.TemporaryDirectory() as out:
        evaluator = judge(base_url, concurrency, images)
        folder = Path(out) / "v.transcripts" if transcripts else None
        tally = asyncio.run(
            score_files(
                [path],
                evaluator,
                Path(out) / "v.jsonl",
                transcripts=folder,
                concurrency=concurrency,
            )
        )
        assert not tally.unscored, tally.unscored


def with_prill_over_sdk(base_url: str, path: Path, concurrency: int, images: bool) -> None:
    """prill, its requests carried by the SDK's client, of whose layers it uses as few as it can."""
    from functools import cache
    from types import SimpleNamespace

    import httpx2
    import openai

    from prill.models.transport import Endpoint

    @cache
    def client(loop: asyncio.AbstractEventLoop) -> openai.AsyncOpenAI:
        http = openai.DefaultAioHttpClient(limits=httpx2.Limits(max_connections=concurrency))
        return openai.AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0, http_client=http)

    async def exchange(
        self: Endpoint, connection: object, method: str, path: str, body: bytes | None = None
    ) -> Any:
        sdk, kind = (
            client(asyncio.get_running_loop()),
            {"headers": {"Content-Type": "application/json"}},
        )
        try:
            answer = await (
                sdk.get(path, cast_to=httpx2.Response)
                if method == "GET"
                else sdk.post(path, cast_to=httpx2.Response, content=body, options=kind)
            )
        except openai.APIStatusError as error:
            answer = error.response
        return SimpleNamespace(
            status=answer.status_code, reason="", headers=answer.headers
        ), answer.content

    Endpoint._exchange = exchange  # type: ignore[method-assign, assignment]
    with_prill(base_url, path, concurrency, images)


def with_bare_aiohttp(base_url: str, rows: list[dict[str, object]], concurrency: int) -> None:
    import aiohttp

    async def run() -> None:
        queue = iter(rows)
        connector = aiohttp.TCPConnector(limit=concurrency)
        async with aiohttp.ClientSession(
            connector=connector, headers={"Authorization": "Bearer x"}
        ) as session:

            async def work() -> None:
                for row in queue:
                    async with session.post(base_url + "/chat/completions", json=row) as response:
                        assert (
                            "tatus" in (await response.json())["choices"][0]["message"]["content"]
                        )

            await asyncio.gather(*(work() for _ in range(concurrency)))

    asyncio.run(run())


def with_bare_sdk(base_url: str, rows: list[dict[str, object]], concurrency: int) -> None:
    import openai

    async def run() -> None:
        client = openai.AsyncOpenAI(
            base_url=base_url, api_key="x", http_client=openai.DefaultAioHttpClient()
        )
        queue = iter(rows)

        async def work() -> None:
            for row in queue:
                reply = await client.chat.completions.create(**row)
                assert "tatus" in reply.choices[0].message.content

        await asyncio.gather(*(work() for _ in range(concurrency)))
        await client.close()

    asyncio.run(run())


def with_plain_loop(base_url: str, rows: list[dict[str, object]]) -> None:
    import openai

    client = openai.OpenAI(base_url=base_url, api_key="x")
    for row in rows:
        assert "tatus" in client.chat.completions.create(**row).choices[0].message.content
    client.close()


def with_pool(base_url: str, rows: list[dict[str, object]]) -> None:
    with ProcessPoolExecutor(10) as pool:
        list(pool.map(with_plain_loop, [base_url] * 10, [rows[i::10] for i in range(10)]))


def cpu_seconds() -> tuple[float, float]:
    """User and system time of this process, and of its finished children."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def timed(run: Callable[[], None]) -> tuple[float, float, float]:
    """Seconds that it took, and seconds of CPU of this process and of those that it started."""
    own, children = cpu_seconds()
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    own_now, children_now = cpu_seconds()
    return seconds, own_now - own, children_now - children


def measure(args: argparse.Namespace) -> None:
    """Measures one row in this process, and prints it as JSON."""
    os.sched_setaffinity(0, cores(args.way, 0))
    gc.set_threshold(10_000)  # as the command does; for all ways alike

    path = Path(args.input)
    rows = [] if args.way in _OURS else requests(path, args.images)
    count = len(rows) or sum(1 for _ in path.open())
    few = path.with_name("few.jsonl")  # for what every run takes, however short
    few.write_text("".join(islice(path.open(), 2)))
    ways: dict[str, Callable[[Path, list[dict[str, object]]], None]] = {
        "prill": lambda path, rows: with_prill(args.base_url, path, args.concurrency, args.images),
        "over SDK": lambda path, rows: with_prill_over_sdk(
            args.base_url, path, args.concurrency, args.images
        ),
        "transcripts": lambda path, rows: with_prill(
            args.base_url, path, args.concurrency, args.images, transcripts=True
        ),
        "1 core": lambda path, rows: with_prill(args.base_url, path, args.concurrency, args.images),
        "2 cores": lambda path, rows: with_prill(
            args.base_url, path, args.concurrency, args.images
        ),
        "bare aiohttp": lambda path, rows: with_bare_aiohttp(args.base_url, rows, args.concurrency),
        "bare SDK": lambda path, rows: with_bare_sdk(args.base_url, rows, args.concurrency),
        "plain loop": lambda path, rows: with_plain_loop(args.base_url, rows),
        "pool of 10": lambda path, rows: with_pool(args.base_url, rows),
    }
    _, *start = timed(lambda: ways[args.way](few, rows[:2]))
    seconds, own, children = timed(lambda: ways[args.way](path, rows))
    children = max(0.0, children - start[1])
    result = {
        "count": count,
        "per_second": count / seconds,
        "cpu_ms": 1000 * own / count,
        "children_ms": 1000 * children / count,
        "start_s": sum(start),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(result))


def row(
    way: str, concurrency: int, images: bool, count: int, latency: float = LATENCY
) -> dict[str, Any]:
    """Measures one row in a separate process, against a separate server."""
    from prill.testing import MockServer

    with tempfile.TemporaryDirectory() as folder, MockServer(latency=latency) as server:
        os.sched_setaffinity(server.pid, cores(way, 1))
        path = write_input(Path(folder), count, images)
        command = [
            sys.executable,
            __file__,
            "--way",
            way,
            "--concurrency",
            str(concurrency),
            "--input",
            str(path),
        ]
        command += ["--base-url", server.base_url] + (["--images"] if images else [])
        before = process_cpu_seconds(server.pid)
        result = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        result["server_ms"] = 1000 * (process_cpu_seconds(server.pid) - before) / count
    return {"way": way, "concurrency": concurrency, "images": images, **result}


def process_cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def by_cpu(r: dict[str, Any]) -> float:
    """Verdicts a second of two cores by the CPU that was measured: all of it on both, and no
    process on more than one.
    """
    most = [r["concurrency"] / LATENCY, 2000 / (r["cpu_ms"] + r["children_ms"] + r["server_ms"])]
    most += [1000 / r["cpu_ms"], 1000 / r["server_ms"]]
    return min(most)


def table(rows: list[dict[str, Any]]) -> str:
    """Formats the rows as a table."""
    lines = [
        f"{'':12} {'conc.':>5} {'input':>6} {'n':>7} {'verdicts/s':>11} {'of ideal':>9} "
        f"{'CPU ms':>7} {'children':>8} {'mock ms':>7} {'by CPU':>8} {'start s':>7} {'MB':>5}"
    ]
    for r in rows:
        ideal = r["per_second"] / (r["concurrency"] / LATENCY)
        kind = "image" if r["images"] else "text"
        numbers = (
            f"{r['per_second']:>11.1f} {ideal:>9.1%} {r['cpu_ms']:>7.2f} "
            f"{r['children_ms']:>8.2f} {r['server_ms']:>7.2f} "
        )
        numbers += f"{by_cpu(r):>8.0f} {r['start_s']:>7.2f} {r['peak_mb']:>5.0f}"
        lines.append(f"{r['way']:12} {r['concurrency']:>5} {kind:>6} {r['count']:>7} {numbers}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="length of a row at the ideal rate"
    )
    parser.add_argument(
        "--only", metavar="WAY,WAY", help="these ways alone, such as '1 core,2 cores'"
    )
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--out")
    for hidden in ("--way", "--input", "--base-url"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--concurrency", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--images", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        measure(args)
        return
    rows = []
    for images in (False, True):
        for way, concurrency in [
            ("plain loop", 1),
            ("pool of 10", 10),
            ("bare aiohttp", 64),
            ("bare aiohttp", 256),
            ("bare SDK", 64),
            ("bare SDK", 256),
            ("prill", 1),
            ("prill", 16),
            ("prill", 64),
            ("prill", 256),
            ("over SDK", 64),
            ("over SDK", 256),
            ("transcripts", 64),
            ("transcripts", 256),
            ("1 core", 64),
            ("2 cores", 64),
            ("1 core", 256),
            ("2 cores", 256),
        ]:
            if args.only and way not in args.only.split(","):
                continue
            rows.append(row(way, concurrency, images, round(args.seconds * concurrency / LATENCY)))
            print(
                table(rows[-1:]) if len(rows) == 1 else table(rows[-1:]).splitlines()[1], flush=True
            )
    if args.memory:
        print(
            "\nprill, text only, no latency, concurrency 64: peak memory by the length of the input"
        )
        for count in (1_000, 10_000, 100_000):
            rows.append(row("prill", 64, False, count, latency=0.0))
            print(
                f"{count:>8} trajectories: {rows[-1]['peak_mb']:.1f} MB, "
                f"{rows[-1]['per_second']:.0f} verdicts/s",
                flush=True,
            )
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
