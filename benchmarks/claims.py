"""Measures the claim check against human labels of claims:
`python benchmarks/claims.py LABELS.json [arb_webjudge folder]`.

LABELS.json has `answers`, each with `part` and `id`, and `claims`, each with `part`, `id`, `kind`,
`text` and `status`: `seen`, `never_seen`, `request` (only the request says it) or `not_checkable`.
A flag is a claim that was never seen, or seen otherwise, where captions count as all that a state
shows. Flags on text that nobody labelled as a claim count as wrong. Intervals: 2,000 draws of whole
tasks.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from prill.datasets.formats import agentrewardbench_webjudge as webjudge_runs
from prill.evaluators.claim_check import check_claims, normalize_text, unseen_claims
from prill.evaluators.labels import gold_labels
from prill.io.store import BadLine
from prill.types import CheckedClaim, Trajectory

ROOT = Path(__file__).resolve().parents[1]
DRAWS, LEAST_OVERLAP = 2000, 0.3  # share of the longer text that two spans of one claim have
NAMES = ("hits", "false flags", "missed", "seen rightly", "seen")


def main() -> int:
    base = Path(os.environ.get("PRILL_DATA") or ROOT.parent / "shared" / "data")
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else base / "arb_webjudge"
    if len(sys.argv) < 2 or not folder.is_dir():
        print(f"skipped: give the labels; recordings are expected in {folder}")
        return 0
    labelled = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    runs = {run.id: run for run in webjudge_runs.load(folder) if isinstance(run, Trajectory)}
    for part in sorted({answer["part"] for answer in labelled["answers"]}):
        tasks: dict[str, list[int]] = defaultdict(lambda: [0] * len(NAMES))
        for answer in labelled["answers"]:
            if answer["part"] == part:
                own = [
                    c for c in labelled["claims"] if (c["part"], c["id"]) == (part, answer["id"])
                ]
                run = runs[answer["id"]]
                tasks[run.task.id] = [
                    a + b for a, b in zip(tasks[run.task.id], counts(run, own), strict=True)
                ]
        print(f"part {part}: {figures(list(tasks.values()))}")
    truths(folder, list(runs.values()))
    return 0


def counts(run: Trajectory, labelled: list[dict[str, Any]]) -> list[int]:
    """Returns the counts of one answer, in the order of NAMES."""
    found = [0] * len(NAMES)
    left = list(labelled)
    for claim in check_claims(run, captions_are_whole=True):
        flagged = bool(unseen_claims([claim]))
        label = max(left, key=lambda one: likeness(claim, one), default=None)
        if label is None or not likeness(claim, label):
            found[1] += flagged
            continue
        left.remove(label)
        wrong = label["status"] == "never_seen"
        found[0] += flagged and wrong
        found[1] += flagged and not wrong
        found[2] += wrong and not flagged
        found[3] += claim.status == "seen" and label["status"] in ("seen", "request")
        found[4] += claim.status == "seen"
    found[2] += sum(label["status"] == "never_seen" for label in left)
    return found


def likeness(claim: CheckedClaim, label: dict[str, Any]) -> float:
    """How much of the same span of text two claims are; 0: they are different ones."""
    one, other = sorted((normalize_text(claim.text), normalize_text(label["text"])), key=len)
    share = len(one) / max(1, len(other))
    same_kind = (claim.kind == "action") == (label["kind"] == "action")
    return share if same_kind and f" {one} " in f" {other} " and share > LEAST_OVERLAP else 0.0


def figures(tasks: list[list[int]]) -> str:
    draw = random.Random(0)
    draws = [ratios([draw.choice(tasks) for _ in tasks]) for _ in range(DRAWS)]
    words = []
    for i, (name, share) in enumerate(
        zip(("precision", "recall", "seen rightly"), ratios(tasks), strict=True)
    ):
        ends = sorted(one[i] for one in draws)
        low, high = ends[DRAWS // 40], ends[-DRAWS // 40]
        words.append(f"{name} {share:.3f} [{low:.3f}, {high:.3f}]")
    total = dict(zip(NAMES, map(sum, zip(*tasks, strict=True)), strict=True))
    return f"{', '.join(words)}; {total}"


def ratios(tasks: list[list[int]]) -> tuple[float, float, float]:
    hits, false, missed, right, seen = map(sum, zip(*tasks, strict=True))
    return hits / max(1, hits + false), hits / max(1, hits + missed), right / max(1, seen)


def truths(folder: Path, runs: list[Trajectory]) -> None:
    """How a flag goes with the human label, over every run that answered."""
    labels = [one for one in webjudge_runs.load_labels(folder) if not isinstance(one, BadLine)]
    _, gold = gold_labels(labels, "human", "first")
    table: dict[bool, list[bool]] = {True: [], False: []}
    for run in runs:
        if run.answer and (truth := gold.get(run.id)) is not None:
            flagged = bool(unseen_claims(check_claims(run, captions_are_whole=True)))
            table[flagged].append(truth)
    for flagged, outcomes in table.items():
        print(f"{'a' if flagged else 'no'} flag: {sum(outcomes)} successes of {len(outcomes)}")


if __name__ == "__main__":
    raise SystemExit(main())
