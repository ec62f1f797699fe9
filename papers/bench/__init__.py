"""Benchmarks: tables of an agent's results by task and category, next to the figures that papers
published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.papers.bench.figures import Bench, BenchRun, BenchTrial, make_bench, read_runs
    from prill.papers.bench.mind2web import (
        RecordedBench,
        played_turn,
        recorded_bench,
        recorded_turns,
    )
    from prill.papers.bench.papers import read_paper
    from prill.papers.bench.run import (
        AblationResult,
        BenchConfig,
        BenchResult,
        ablation,
        bench,
        plan_bench,
    )
    from prill.papers.bench.tables import write_bench

__all__ = [
    "AblationResult", "Bench", "BenchConfig", "BenchResult", "BenchRun", "BenchTrial",
    "RecordedBench", "ablation", "bench", "make_bench", "plan_bench", "played_turn", "read_paper",
    "read_runs", "recorded_bench", "recorded_turns", "write_bench",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)
