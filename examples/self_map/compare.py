"""Compares the rankers with random choice, and the planner with and without memory on the same
turns, by the type of reference in a turn.

Run: python examples/self_map/compare.py DATA.json… --gold GOLD.jsonl --out DIR \\
         --memory RUN,RUN --none RUN,RUN --scores FILE,FILE

RUN is a folder of `prill papers bench mind2web`, and FILE a score file of `prill papers rank`, one
for each seed. The 95 % intervals come from a bootstrap over whole conversations with all their
seeds. The p values come from an exact two-sided permutation test that swaps the two arms within
conversations. The script writes two tables (results.md) and a chart (results.svg).
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable
from math import isnan
from pathlib import Path

import numpy as np

from prill.evaluators.metrics import intervals, wilson
from prill.io.store import iter_trajectories
from prill.papers.bench.mind2web import played_turn, recorded_turns
from prill.papers.mind2web.pages.state import (
    format_conversation,
    read_scores,
    read_state,
    sample_ids,
)
from prill.refine.filtered_bc.results import swapped_p
from prill.ui.report.lines import PlotLine, PlotPoint, row_chart

KINDS = {
    "none": "turns that stand alone",
    "same": "the same again",
    "other": "the other one",
    "back": "all that refer back",
}


def detect_kinds(files: Iterable[Path]) -> dict[str, str]:
    """Returns what each turn refers to, as recorded by the data generator."""
    records = (record for file in files for record in json.loads(file.read_text(encoding="utf-8")))
    return {
        turn["annotation_id"]: turn.get("refers", "none")
        for record in records
        for turn in record["turns"]
    }


MOST = (1, 3, 5)  # cutoffs of recall
# by type and conversation: steps, right elements, right steps
Counts = dict[str, dict[str, np.ndarray]]


def counted(gold: Path, runs: Iterable[Path], kinds: dict[str, str]) -> tuple[Counts, int]:
    """Returns the counts over all seeds, and the number of aborted turns."""
    turns = {turn.id: turn for turn in recorded_turns(gold, "all")}
    counts: Counts = {kind: defaultdict(lambda: np.zeros(3)) for kind in KINDS}
    lost = 0
    for run in runs:
        for episode in iter_trajectories(run / "episodes" / "trajectories.jsonl"):
            turn = turns[episode.task.id]
            scores = played_turn(turn, episode).scores
            if scores is None:
                lost += 1
                continue
            kind = kinds[turn.id]
            for step in scores:
                row = np.array([1, step.element, step.success])
                for name in (kind, *(["back"] if kind != "none" else [])):
                    counts[name][turn.conversation] += row
    return counts, lost


def share(counts: dict[str, np.ndarray], column: int) -> tuple[float, float, float]:
    """Returns a fraction of the steps, with its interval."""
    table = np.array(list(counts.values()))[:, [0, column]]
    lows, highs = intervals(table, lambda sums: sums[:, 1:] / sums[:, :1], (0.0,))
    total = table.sum(axis=0)
    right, low, high = float(total[1] / total[0]), float(lows[0]), float(highs[0])
    # Identical rows, or a single one: each conversation is one trial.
    return (right, low, high) if low < high else (right, *wilson(right, len(table)))


def difference(
    one: dict[str, np.ndarray], two: dict[str, np.ndarray], column: int
) -> tuple[float, float, float]:
    """Returns the difference of the two fractions on the same conversations, with its interval."""
    both = [key for key in one if key in two]
    table = np.array(
        [np.concatenate([one[key][[0, column]], two[key][[0, column]]]) for key in both]
    )

    def between(sums: np.ndarray) -> np.ndarray:
        return (sums[:, 1] / sums[:, 0] - sums[:, 3] / sums[:, 2])[:, None]

    low, high = intervals(table, between, (-1.0,))
    return float(between(table.sum(axis=0, keepdims=True))[0, 0]), float(low[0]), float(high[0])


def tested(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> float:
    """Returns the p value of the difference in right steps, from swapping the arms by
    conversation.
    """
    return swapped_p(int(one[key][2] - two[key][2]) for key in one if key in two)


def lot(gold: Path) -> list[dict[int, float]]:
    """Returns, for each step, the probability that its element is among k random candidates."""
    found = []
    for turn in iter_trajectories(gold):
        for step in turn.steps:
            count = max(1, len(read_state(step.observation.text or "").candidates))
            # each step has one right element
            found.append({most: min(1.0, most / count) for most in MOST})
    return found


def recalls(gold: Path, files: Iterable[Path]) -> list[tuple[float, float, float]]:
    """Returns the recall at 1, 3 and 5 of the rankers, with intervals."""
    counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(1 + len(MOST)))
    for file in files:
        scores = read_scores(file)
        for turn in iter_trajectories(gold):
            for step, sample in zip(turn.steps, sample_ids(turn), strict=True):
                order = sorted(scores[sample], key=lambda id: -scores[sample][id])
                right = {*(step.action.target or "").split()}
                counts[format_conversation(turn)] += [
                    1,
                    *(bool(right & {*order[:most]}) for most in MOST),
                ]
    return [share(counts, 1 + place) for place in range(len(MOST))]


def told(figure: tuple[float, float, float]) -> str:
    share, low, high = figure
    return f"{share:.3f}" if isnan(low) else f"{share:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", nargs="+", type=Path, metavar="DATA.json", help="the generated conversations"
    )
    parser.add_argument(
        "--gold",
        type=Path,
        required=True,
        help="the same as trajectories, from prill convert mind2web",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for results.md and results.svg"
    )
    parser.add_argument("--memory", required=True, help="runs with memory, separated by commas")
    parser.add_argument("--none", required=True, help="runs without, of the same seeds")
    parser.add_argument(
        "--scores", default="", help="score files of the trained rankers, separated by commas"
    )
    parser.add_argument("--bm25", type=Path, help="a score file by shared words, to stand beside")
    options = parser.parse_args()
    rankers = {"trained ranker": [Path(one) for one in options.scores.split(",") if one]}
    rankers["BM25"] = [options.bm25] if options.bm25 else []
    by_lot = lot(options.gold)
    ranking = ["| ranker | first | among 3 | among 5 |", "|---|---|---|---|"]
    for name, files in rankers.items():
        if files:
            ranking.append(f"| {name} | {' | '.join(map(told, recalls(options.gold, files)))} |")
    shares = [sum(step[most] for step in by_lot) / len(by_lot) for most in MOST]
    ranking.append(f"| chance | {' | '.join(f'{one:.3f}' for one in shares)} |")
    kinds = detect_kinds(options.data)
    arms = {
        name: [Path(run) for run in getattr(options, name).split(",")]
        for name in ("memory", "none")
    }
    found = {name: counted(options.gold, runs, kinds) for name, runs in arms.items()}
    rows = [
        *ranking,
        "",
        (
            "| turns | steps | elements, with memory | without | steps right, with memory | "
            "without | difference | p |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    shown: dict[str, list[PlotPoint]] = {"memory": [], "none": []}
    names = []
    for kind, words in KINDS.items():
        memory, none = found["memory"][0][kind], found["none"][0][kind]
        if not memory or not none:
            continue
        steps = int(sum(row[0] for row in memory.values()))
        cells = [told(share(counts, column)) for column in (1, 2) for counts in (memory, none)]
        rows.append(
            f"| {words} | {steps} | {' | '.join(cells)} | {told(difference(memory, none, 2))} | "
            f"{tested(memory, none):.2g} |"
        )
        for name, counts in (("memory", memory), ("none", none)):
            right, low, high = share(counts, 2)
            shown[name].append(
                PlotPoint(float(len(names)), right, low, high, f"{right:.3f} of {steps} steps")
            )
        names.append(words)
    lost = sum(count for _, count in found.values())
    rows.append(
        f"\nSteps are those of all seeds. By lot, the element is right at {shares[0]:.3f} of the "
        f"steps. {lost} turns broke off."
    )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.md").write_text("\n".join(rows) + "\n", encoding="utf-8")
    lines = [PlotLine("with memory", shown["memory"]), PlotLine("without", shown["none"])]
    (options.out / "results.svg").write_text(
        row_chart("Steps right, by what turns refer to", names, lines), encoding="utf-8"
    )
    print("\n".join(rows))


if __name__ == "__main__":
    main()
