"""Measures how long `import prill` and `prill --help` take, compared with an empty Python:
`python benchmarks/import_time.py [runs]`.

Prints medians of the wall time in milliseconds, the extra over the empty run, and the ratio.
Limits: import 200 ms, help 600 ms.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from time import perf_counter

CASES = {
    "python -c pass": ["-c", "pass"],
    "import prill": ["-c", "import prill"],
    "import prill.types": ["-c", "import prill.types"],
    "prill --help": ["-m", "prill", "--help"],
    "prill score --help": ["-m", "prill", "score", "--help"],
}


def seconds(arguments: list[str]) -> float:
    """Measures the wall time of one new interpreter."""
    start = perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - start


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for arguments in CASES.values():
        seconds(arguments)  # writes the byte code
    # Measured in turns, so that load on the machine affects all of them equally.
    for _ in range(runs):
        for name, arguments in CASES.items():
            times[name].append(seconds(arguments))
    bare = median(times["python -c pass"])
    print(f"Python {sys.version.split()[0]}, {runs} runs each, median wall time")
    print(f"{'':<20}{'ms':>8}{'extra':>8}{'ratio':>8}")
    for name, taken in times.items():
        middle = median(taken)
        print(f"{name:<20}{middle * 1e3:>8.0f}{(middle - bare) * 1e3:>8.0f}{middle / bare:>8.2f}")


if __name__ == "__main__":
    main()
