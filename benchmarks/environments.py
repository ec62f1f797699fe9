"""How many one-click episodes of MiniWoB++ a second: prill's environment beside BrowserGym's, on
the same tasks.

Run:   python benchmarks/environments.py [--seconds 20] [--rounds 1] [--out FILE.json]
Needs: Chromium, playwright, miniwob; for BrowserGym's rows also browsergym-miniwob, best in an
environment of its own
       (gym/bin/pip install browsergym-miniwob msgspec; PYTHONPATH=. gym/bin/python
       benchmarks/environments.py).
An episode: start with the next seed, look (screenshot and text), click what the goal names, look,
read the reward. Tasks: click-test, click-test-2, click-button, click-link, in turn. BrowserGym
plays as it does by default, and as fast as it can be set: no waiting (slow_mo 0, no delay before it
looks), and one browser instead of two (its chat window left out). Every row is measured in
processes of its own, with a first episode that does not count. CPU and memory are those of the
whole tree of processes, browser included (memory: proportional set size when the time is up). Where
other programs run, compare rows of one run only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

TASKS = ("click-test", "click-test-2", "click-button", "click-link")
SUM = ("episodes", "solved", "cpu", "memory")
# Name of the row: what one process runs, how many processes.
ROWS = {
    "prill, 1 worker": ("prill-1", 1),
    "prill, 2 workers, one browser": ("prill-2", 1),
    "prill, 2 processes": ("prill-1", 2),
    "BrowserGym, as it is": ("browsergym", 1),
    "BrowserGym, fastest": ("browsergym-fast", 1),
    "BrowserGym, fastest, 2 processes": ("browsergym-fast", 2),
}


def wanted(goal: str) -> str:
    """Returns the name of the element to click, from the goal."""
    found = re.search(r'"(.+?)"', goal) or re.search(r"button (\w+)\.", goal)
    return found[1] if found else "Click Me!"


def episodes(offset: int) -> Iterator[tuple[str, int]]:
    """Tasks in turn, with ever new seeds; workers have different ones."""
    for seed in itertools.count(10_000 * offset):
        for task in TASKS:
            yield task, seed


class Clock:
    """Counts what is finished between the first episode and the end of the time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.finished = self.solved = 0
        self.start = self.stop = 0.0
        self.cpu = 0.0

    def begin(self) -> None:
        self.start, self.cpu = time.perf_counter(), tree()[0]

    @property
    def running(self) -> bool:
        return time.perf_counter() - self.start < self.seconds

    def count(self, solved: bool) -> None:
        self.finished, self.solved, self.stop = (
            self.finished + 1,
            self.solved + solved,
            time.perf_counter(),
        )

    def result(self) -> dict[str, float]:
        cpu, memory = tree()
        took = self.stop - self.start
        return {
            "episodes": self.finished,
            "seconds": took,
            "solved": self.solved,
            "cpu": cpu - self.cpu,
            "memory": memory,
        }


def tree() -> tuple[float, float]:
    """Returns the CPU seconds so far and the current memory in MB of this process and its
    children.
    """
    tick, parents, cpu = os.sysconf("SC_CLK_TCK"), {}, {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit():
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(fields[1])
                # Children that have ended are counted with their parent.
                cpu[int(folder.name)] = sum(map(int, fields[11:15])) / tick
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    memory = 0
    for pid in found:
        with contextlib.suppress(OSError):
            pss = re.search(
                r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE
            )
            memory += int(pss[1]) if pss else 0
    return sum(cpu.get(pid, 0.0) for pid in found), memory / 1024


async def play_prill(clock: Clock, workers: int, offset: int, images: Path) -> dict[str, float]:
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.miniwob.environment import MiniWoB
    from prill.types import Action, Trajectory

    browser = Chromium()
    environments = [MiniWoB(images, browser=browser) for _ in range(workers)]

    async def episode(environment: MiniWoB, name: str, seed: int) -> bool:
        task = await environment.task(name, seed)
        await environment.reset(task)
        role = "link" if name == "click-link" else "button"
        await environment.step(
            Action("click", target=f"{role} {json.dumps(wanted(task.goal), ensure_ascii=False)}")
        )
        return (await environment.grade(Trajectory(id="", task=task))).success is True

    async def work(environment: MiniWoB, offset: int) -> None:
        for name, seed in episodes(offset):
            if not clock.running:
                return
            clock.count(await episode(environment, name, seed))

    await asyncio.gather(*(episode(environment, "click-test", 0) for environment in environments))
    clock.begin()
    await asyncio.gather(
        *(work(environment, offset + place) for place, environment in enumerate(environments))
    )
    result = clock.result()
    await asyncio.gather(*(environment.close() for environment in environments))
    await browser.close()
    return result


class Chat:
    """BrowserGym's chat without the window that the original opens in a second browser."""

    recording_start_time = None

    def __init__(self, **settings: object) -> None:
        self.messages: list[dict[str, object]] = []

    def add_message(self, role: str, msg: str) -> None:
        """Stores a message; info messages, which the original only displays, are dropped."""
        if role != "info":
            self.messages.append({"role": role, "timestamp": time.time(), "message": msg})

    def wait_for_user_message(self) -> None:
        """Returns at once, since there is no user."""

    def close(self) -> None:
        """Does nothing."""


def find_bid(tree: str, name: str) -> str:
    """Finds the id of the button with that name, or of the element around that text, in
    BrowserGym's tree.
    """
    lines = tree.splitlines()
    for place, line in enumerate(lines):
        if f"button {name!r}" in line:
            return re.findall(r"\[(\w+)\]", line)[0]
        if line.strip() == f"StaticText {name!r}" and "clickable" in lines[place - 1]:
            return re.findall(r"\[(\w+)\]", lines[place - 1])[0]
    return "0"


def play_browsergym(clock: Clock, offset: int, fast: bool) -> dict[str, float]:
    import browsergym.core as core
    import browsergym.core.env as env
    import browsergym.miniwob  # noqa: F401
    import gymnasium
    from browsergym.utils.obs import flatten_axtree_to_str

    from prill.emulators.browser.chromium import chromium_path

    os.environ.setdefault("MINIWOB_URL", pages())
    # It would use a Chromium of Playwright's own; both sides are to have the same.
    chromium, path = core._get_global_playwright().chromium, chromium_path()
    launch = chromium.launch
    chromium.launch = lambda **options: launch(**({"executable_path": path} | options))
    if fast:
        env.Chat = Chat
    settings = {"slow_mo": 0, "pre_observation_delay": 0.0} if fast else {}
    made: dict[str, gymnasium.Env] = {}

    def episode(name: str, seed: int) -> bool:
        if name not in made:
            for other in made.values():
                other.close()
            made.clear()
            made[name] = gymnasium.make(
                f"browsergym/miniwob.{name}", disable_env_checker=True, **settings
            )
        seen, _ = made[name].reset(seed=seed)
        text = flatten_axtree_to_str(
            seen["axtree_object"], seen["extra_element_properties"], True, True, skip_generic=False
        )
        bid = find_bid(text.replace(", visible", ""), wanted(seen["goal"]))
        _, reward, *_ = made[name].step(f"click({bid!r})")
        return reward > 0

    episode("click-test", 0)
    clock.begin()
    for name, seed in episodes(offset):
        if not clock.running:
            break
        clock.count(episode(name, seed))
    result = clock.result()
    for environment in made.values():
        environment.close()
    return result


def pages() -> str:
    """Returns the folder of the `miniwob` package's pages."""
    spec = importlib.util.find_spec("miniwob")
    assert spec is not None and spec.submodule_search_locations, "miniwob is not installed"
    return (Path(spec.submodule_search_locations[0]) / "html" / "miniwob").as_uri() + "/"


def measure(args: argparse.Namespace) -> None:
    """Runs one process of a row, and prints its result as JSON."""
    clock = Clock(args.seconds)
    with tempfile.TemporaryDirectory() as folder:
        ways: dict[str, Callable[[], dict[str, float]]] = {
            "prill-1": lambda: asyncio.run(play_prill(clock, 1, args.offset, Path(folder))),
            "prill-2": lambda: asyncio.run(play_prill(clock, 2, args.offset, Path(folder))),
            "browsergym": lambda: play_browsergym(clock, args.offset, fast=False),
            "browsergym-fast": lambda: play_browsergym(clock, args.offset, fast=True),
        }
        print(json.dumps(ways[args.way]()))


def row(way: str, processes: int, seconds: float) -> dict[str, float]:
    """Measures one row in separate processes."""
    command = [sys.executable, __file__, "--seconds", str(seconds), "--way", way, "--offset"]
    started = [
        subprocess.Popen([*command, str(10 * n)], stdout=subprocess.PIPE, text=True)
        for n in range(processes)
    ]
    results = [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]
    total = {key: sum(result[key] for result in results) for key in SUM}
    return {
        "per_second": sum(result["episodes"] / result["seconds"] for result in results),
        "solved": total["solved"] / total["episodes"],
        "cpu_ms": 1000 * total["cpu"] / total["episodes"],
        "memory_mb": total["memory"],
        "episodes": total["episodes"],
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a row (default 20)")
    parser.add_argument(
        "--rounds",
        type=int,
        default=1,
        help="times to measure every row; the table shows medians (default 1)",
    )
    parser.add_argument("--out", help="JSON file for the figures of every round")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--offset", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        measure(args)
        return
    names = list(ROWS)
    if (
        importlib.util.find_spec("browsergym") is None
        or importlib.util.find_spec("browsergym.miniwob") is None
    ):
        names = [name for name in names if "BrowserGym" not in name]
        print(
            "BrowserGym is not installed here, so its rows are left out: pip install "
            "browsergym-miniwob",
            file=sys.stderr,
        )
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(args.rounds):
        for name in names:
            measured[name].append(row(*ROWS[name], args.seconds))
            last = measured[name][-1]
            print(
                f"round {turn + 1}: {name}: {last['per_second']:.2f}/s, load {last['load']:.1f}",
                file=sys.stderr,
                flush=True,
            )
    print(f"{'':37} {'episodes/s':>10} {'CPU ms each':>11} {'memory MB':>9} {'solved':>6}")
    for name, rows in measured.items():
        speed, cpu, memory, solved = (
            median(r[key] for r in rows) for key in ("per_second", "cpu_ms", "memory_mb", "solved")
        )
        print(f"{name:37} {speed:>10.2f} {cpu:>11.0f} {memory:>9.0f} {solved:>6.0%}")
    print(
        f"{os.cpu_count()} cores, load average "
        f"{', '.join(f'{load:.1f}' for load in os.getloadavg())}"
    )
    if args.out:
        Path(args.out).write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
