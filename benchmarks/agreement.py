"""Measures `prill agree` on many rows: `python benchmarks/agreement.py [rows]`, reading and
comparing apart.

Beside it, the usual bootstrap: a Python loop that draws row numbers, counts. Aim: under 2 s for
100,000 rows once read, and for 1,300 rows whose scores all differ.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from prill.evaluators.agreement.agreement import agreement
from prill.evaluators.metrics import DRAWS
from prill.io.store import encode, read_labels, read_verdicts
from prill.types import EvaluatorInfo, LabelRecord, Verdict

LOOPED = 20


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    judge = EvaluatorInfo("vlm", "1", "m")
    generator = np.random.default_rng(0)
    said, truth = (generator.random((2, rows)) < 0.3).tolist()
    with tempfile.TemporaryDirectory() as folder:
        verdicts, labels = Path(folder) / "verdicts.jsonl", Path(folder) / "labels.jsonl"
        lines = (
            encode(Verdict(id=str(i), success=yes, score=float(yes), evaluator=judge))
            for i, yes in enumerate(said)
        )
        verdicts.write_bytes(b"".join(lines))
        labels.write_bytes(
            b"".join(encode(LabelRecord(id=str(i), success=yes)) for i, yes in enumerate(truth))
        )
        start = perf_counter()
        read = list(read_verdicts(verdicts)), list(read_labels(labels))
        reading = perf_counter() - start
    likely = generator.random(rows).tolist()
    graded = [
        replace(v, score=(p + bool(v.success)) / 2) for v, p in zip(read[0], likely, strict=True)
    ]
    by_task = {str(i): str(i // 5) for i in range(rows)}
    for name, said_so, tasks in (
        ("by row", read[0], None),
        ("by task of 5", read[0], by_task),
        ("by task of 5, every score another", graded, by_task),
    ):
        start = perf_counter()
        agreement(said_so, read[1], tasks=tasks)
        print(
            f"{rows} rows, {name:<34} compare {perf_counter() - start:6.2f} s  (read "
            f"{reading:.2f} s)"
        )
    right = np.array(said) == np.array(truth)
    start = perf_counter()
    for _ in range(LOOPED):
        right[generator.integers(0, rows, rows)].mean()
    print(
        f"drawing row numbers, one figure: {(perf_counter() - start) / LOOPED * DRAWS:6.2f} s for "
        f"{DRAWS} draws"
    )


if __name__ == "__main__":
    main()
