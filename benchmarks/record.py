"""Measures the cost of recording an agent's steps: `python benchmarks/record.py [STEPS]`.

The same clicks on the same page of a real Chromium, recorded and not, in turns in one process;
beside them with a screenshot before each click, as agents that see take one anyway. Medians of one
step, and their ratios.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import sync_playwright

import prill
from prill.emulators.browser.chromium import chromium_path

ROWS = "".join(f"<li>Tea {number} <button>Buy {number}</button></li>" for number in range(200))
PAGE = f"""<title>Shop</title><h1>Tea</h1><button id=count
onclick="this.textContent = Number(this.textContent) + 1">0</button><ul>{ROWS}</ul>"""


def click(page: Any) -> float:
    start = time.perf_counter()
    page.click("#count")
    return time.perf_counter() - start


def see_and_click(page: Any) -> float:
    start = time.perf_counter()
    page.screenshot()
    page.click("#count")
    return time.perf_counter() - start


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        bare = browser.new_page()
        bare.set_content(PAGE)
        times: dict[str, list[float]] = {"plain": [], "with a screenshot": [], "recorded": []}
        with prill.record(Path(folder), "Count") as run:
            page = run.page(bare)
            for _ in range(steps):
                times["plain"].append(click(bare))
                times["with a screenshot"].append(see_and_click(bare))
                times["recorded"].append(click(page))
            assert run.failures == 0
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        browser.close()
    recorded = median(times["recorded"])
    for name, taken in times.items():
        middle = median(taken)
        print(f"{name:<18}{middle * 1e3:>8.1f} ms   recorded / this: {recorded / middle:.2f}")
    tenth = max(1, steps // 10)
    growth = median(times["recorded"][-tenth:]) / median(times["recorded"][:tenth])
    print(f"last tenth of the recorded steps / first tenth: {growth:.2f}")
    print(f"on disk: {size / steps / 1e3:.0f} kB a step")


if __name__ == "__main__":
    main()
