"""What a study of filtered behavioural cloning came to: counts with intervals, arms compared on the same episodes.

Everything is read from the recordings, so the tables say what was played.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prill.errors import UsageError
from prill.evaluators.meta.comparison import exact_mcnemar
from prill.evaluators.metrics import wilson
from prill.files.kinds import TRAJECTORIES
from prill.run_folder import LABELS
from prill.store import BadLine, read_labels, read_trajectories
from prill.types import Verdict

BASE = "base"
Key = tuple[str, int, int]  # an episode, whoever plays it: task, seed, attempt
Outcomes = Mapping[Key, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Successes of one arm after one round, among `n` episodes with a label; `unlabelled` have none (they broke off)."""

    arm: str
    seed: int | None
    round: int
    successes: int
    n: int
    unlabelled: int
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two arms on the episodes that both played: how many only the first solved, and only the second; exact McNemar p.

    With `seed` None, each episode is one comparison of how many training seeds solved it: a sign test over episodes, which are
    drawn anew for nobody, so several seeds do not count as more episodes.
    """

    arm: str
    against: str
    seed: int | None
    round: int
    pairs: int
    gained: int
    lost: int
    p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All figures of a study. `judges` are what the manifests say of each arm's judge and filter, `by_task` successes and
    episodes of each task after the last round, over all seeds."""

    scores: tuple[Score, ...]
    differences: tuple[Difference, ...]
    judges: tuple[Mapping[str, Any], ...]
    by_task: Mapping[str, Mapping[str, tuple[int, int]]]


def outcomes_of(folder: Path) -> dict[Key, bool | None]:
    """Each recorded episode with what the oracle says of it; None where it is undecided. Raises UsageError."""
    labels = {label.id: label.success for label in read_labels(folder / LABELS)} if (folder / LABELS).exists() else {}
    outcomes: dict[Key, bool | None] = {}
    for item in read_trajectories(folder / TRAJECTORIES):
        if isinstance(item, BadLine):
            raise UsageError(f"{folder / TRAJECTORIES}: {item.message}")
        key = (item.task.id or item.task.goal, int(item.metadata.get("seed", 0)), int(item.metadata.get("attempt", 0)))
        if key in outcomes:
            raise UsageError(f"{folder}: {key[0]} was played twice, by different policies or settings; delete the folder")
        outcomes[key] = None if item.error is not None else labels.get(item.id)
    return outcomes


def judged_right(verdicts: Iterable[Verdict], attempts: Path) -> dict[str, Any]:
    """How right a judge was on these attempts, by the oracle's labels; None where there is nothing to divide by."""
    truth = {label.id: label.success for label in read_labels(attempts / LABELS)} if (attempts / LABELS).exists() else {}
    counts: Counter[tuple[bool, bool]] = Counter()
    unscored = 0
    for verdict in verdicts:
        true = truth.get(verdict.id)
        if verdict.success is None:
            unscored += 1
        elif true is not None:
            counts[verdict.success, true] += 1
    tp, fp, fn, tn = (counts[pair] for pair in ((True, True), (True, False), (False, True), (False, False)))
    return {
        "tp": tp, "fp": fp, "fn": fn, "tn": tn, "unscored": unscored,
        "precision": _share(tp, tp + fp), "recall": _share(tp, tp + fn), "false_positive_rate": _share(fp, fp + tn),
    }  # fmt: skip


def results_of(out: Path) -> Results:
    """The figures of all rounds that are finished in a study's folder, whatever process or call made them."""
    base = outcomes_of(out / BASE / "evaluation")
    manifests = [(file.parent, json.loads(file.read_bytes())) for file in out.glob("seed-*/*/round-*/manifest.json")]
    arms = [arm["name"] for arm in json.loads((out / "study.json").read_bytes())["arms"]]
    manifests.sort(key=lambda of: (of[1]["round"], of[1]["seed"], arms.index(of[1]["arm"])))
    played: dict[tuple[str, int, int], Mapping[Key, bool | None]] = {
        (m["arm"], m["seed"], m["round"]): outcomes_of(folder / "evaluation") for folder, m in manifests if "ended" not in m
    }
    last = max((number for _, _, number in played), default=0)
    scores = [_score(BASE, None, 0, base), *(_score(*key, outcomes) for key, outcomes in played.items())]
    differences: list[Difference] = []
    for number in range(1, last + 1):
        for i, arm in enumerate(arms):
            of_arm = {seed: one for (name, seed, at), one in played.items() if (name, at) == (arm, number)}
            for other in (BASE, *arms[:i]):
                rest = {seed: base if other == BASE else played.get((other, seed, number), {}) for seed in of_arm}
                single = [_difference(arm, other, seed, number, [(of_arm[seed], rest[seed])]) for seed in of_arm]
                differences += single
                if len(single) > 1:
                    differences.append(_difference(arm, other, None, number, [(of_arm[s], rest[s]) for s in of_arm]))
    final = {BASE: [base]} | {arm: [one for (name, _, at), one in played.items() if (name, at) == (arm, last)] for arm in arms}
    by_task: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for arm, several in final.items():
        for task, (successes, n) in _of_tasks(several).items():
            by_task[task][arm] = (successes, n)
    told = ("arm", "seed", "round", "attempts", "judge", "filter", "rows", "ended")
    judges = tuple({key: manifest.get(key) for key in told} for _, manifest in manifests)
    return Results(scores=tuple(scores), differences=tuple(differences), judges=judges, by_task=by_task)


def _score(arm: str, seed: int | None, number: int, outcomes: Mapping[Key, bool | None]) -> Score:
    decided = [success for success in outcomes.values() if success is not None]
    k, n = sum(decided), len(decided)
    interval = wilson(k / n, n) if n else (0.0, 1.0)
    return Score(arm=arm, seed=seed, round=number, successes=k, n=n, unlabelled=len(outcomes) - n, interval=interval)


def _difference(
    arm: str,
    against: str,
    seed: int | None,
    number: int,
    played: Sequence[tuple[Mapping[Key, bool | None], Mapping[Key, bool | None]]],
) -> Difference:
    """Each episode once: how many more of its plays the first arm solved than the second."""
    more: Counter[Key] = Counter()
    for first, second in played:
        for key, success in first.items():
            other = second.get(key)
            if success is not None and other is not None:
                more[key] += int(success) - int(other)
    gained, lost = sum(by > 0 for by in more.values()), sum(by < 0 for by in more.values())
    return Difference(
        arm=arm,
        against=against,
        seed=seed,
        round=number,
        pairs=len(more),
        gained=gained,
        lost=lost,
        p=exact_mcnemar(gained, lost),
    )


def _of_tasks(several: Sequence[Mapping[Key, bool | None]]) -> dict[str, tuple[int, int]]:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for outcomes in several:
        for (task, _, _), success in outcomes.items():
            if success is not None:
                name = task.partition("?")[0].rpartition("/")[2]  # `miniwob/click-link?seed=3`
                counts[name][0] += success
                counts[name][1] += 1
    return {name: (k, n) for name, (k, n) in counts.items()}


def results_text(results: Results) -> str:
    """The figures as Markdown."""
    ended = [f"{m['arm']}, seed {m['seed']}, ended in round {m['round']}: {m['ended']}" for m in results.judges if m["ended"]]
    parts = [
        "# Filtered behavioural cloning",
        "Successes on the episodes held out, with 95 % Wilson intervals.",
        _table("arm|training seed|round|successes|share|interval|without a label", map(_score_cells, results.scores)),
        "The same episodes side by side: exact McNemar tests, two-sided. Over all seeds, a sign test that counts each episode "
        "once, by how many of its plays were solved.",
        _table(
            "arm|against|training seed|round|episodes|only it|only the other|p", map(_difference_cells, results.differences)
        ),
        "What was learnt from: the judge by the oracle's labels, and what the filter kept.",
        _table(
            "arm|training seed|round|attempts|true successes|judge|precision|recall|attempts kept|rows",
            map(_judge_cells, results.judges),
        ),
        *ended,
        "By task, after the last round, over all training seeds.",
        _by_task(results.by_task),
    ]
    return "\n\n".join(parts) + "\n"


def _score_cells(score: Score) -> list[object]:
    low, high = score.interval
    share = f"{score.successes / score.n:.1%}" if score.n else "-"
    seed = "-" if score.seed is None else score.seed
    counts = f"{score.successes}/{score.n}"
    return [score.arm, seed, score.round, counts, share, f"{low:.1%} to {high:.1%}", score.unlabelled]


def _difference_cells(d: Difference) -> list[object]:
    return [d.arm, d.against, "all" if d.seed is None else d.seed, d.round, d.pairs, d.gained, d.lost, f"{d.p:.2g}"]


def _judge_cells(manifest: Mapping[str, Any]) -> list[object]:
    judge, attempts, rows = manifest["judge"], manifest["attempts"], (manifest["rows"] or {}).get("count", 0)
    right = [_percent(judge["precision"]), _percent(judge["recall"])]
    counts = [manifest[key] for key in ("arm", "seed", "round")] + [attempts["episodes"], attempts["successes"]]
    return [*counts, judge["name"], *right, manifest["filter"]["attempts_kept"], rows]


def _by_task(by_task: Mapping[str, Mapping[str, tuple[int, int]]]) -> str:
    arms = list(dict.fromkeys(arm for row in by_task.values() for arm in row))
    cells = (
        [task, *("{}/{}".format(*row[arm]) if arm in row else "-" for arm in arms)] for task, row in sorted(by_task.items())
    )
    return _table("|".join(["task", *arms]), cells)


def _table(head: str, rows: Iterable[Sequence[object]]) -> str:
    names = head.split("|")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
