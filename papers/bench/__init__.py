"""Benchmarks: tables of an agent's results by task and category, next to the figures that papers
published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.papers.bench.figures import (
        Bench,
        BenchRun,
        BenchTrial,
        compute_share,
        make_bench,
        read_runs,
        solved,
    )
    from prill.papers.bench.mind2web import (
        RecordedBench,
        played_turn,
        recorded_bench,
        recorded_turns,
    )
    from prill.papers.bench.papers import Paper, list_tasks, paper_names, read_paper, theirs
    from prill.papers.bench.run import (
        AblationResult,
        BenchConfig,
        BenchResult,
        ablation,
        ablation_async,
        bench,
        bench_async,
        plan_bench,
    )
    from prill.papers.bench.tables import bench_picture, bench_text, write_bench

__all__ = [
    "AblationResult",
    "Bench",
    "BenchConfig",
    "BenchResult",
    "BenchRun",
    "BenchTrial",
    "Paper",
    "RecordedBench",
    "ablation",
    "ablation_async",
    "bench",
    "bench_async",
    "bench_picture",
    "bench_text",
    "compute_share",
    "list_tasks",
    "make_bench",
    "paper_names",
    "plan_bench",
    "played_turn",
    "read_paper",
    "read_runs",
    "recorded_bench",
    "recorded_turns",
    "solved",
    "theirs",
    "write_bench",
]
__getattr__, __dir__ = lazily(__name__)
