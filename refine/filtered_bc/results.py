"""Results of a filtered-BC study: counts with intervals, arms compared on the same episodes.

All figures are computed from the recordings. `write_results` writes tables and plots next to them.
Each finished recording and each finished round has a manifest (see `prill.io.manifest`) with the
hashes of all files that it was made of, so recordings of two arms cannot be swapped.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypedDict

import msgspec

from prill.episodes.run_folder import unlabelled_attempts
from prill.errors import UsageError
from prill.evaluators.labels import get_template
from prill.evaluators.metrics import ratio_interval, wilson
from prill.io.kinds import LABELS, TRAJECTORIES
from prill.io.lines import decode_json, read_json, read_lines, read_whole
from prill.io.manifest import MANIFEST, expect_unchanged
from prill.io.outputs import write_output
from prill.io.store import iter_trajectories, read_labels, read_verdicts
from prill.io.tables import Cell, markdown_table
from prill.io.truth import gold_labels
from prill.types import Verdict
from prill.ui.report.lines import Level, PlotLine, PlotPoint, line_chart

BASE, ROWS, ADAPTER, STUDY = "base", "rows.jsonl", "adapter", "study.json"
RESULTS, TABLES = "results.json", "results.md"
BY_ROUND, BY_PRECISION = "success-by-round.svg", "success-by-precision.svg"
_REMEDY, _AGAIN = "restore the file", "delete it; the study's command then writes it again"
_JUDGED = (
    "**A judge's figures, not the truth.** This environment has no oracle: a success "
    "below is what the judge {} calls a success, including its errors. Only labels show how far it "
    "can be trusted (`prill agree`)."
)
# Fewer clusters than this cannot reach p = 0.05: with five, the least two-sided p is 2 / 2**5.
_FEWEST_TASKS = 6


class _Arm(msgspec.Struct):
    name: str


class _Study(msgspec.Struct):
    arms: tuple[_Arm, ...]
    evaluation: dict[str, Any] = {}


class _Row(msgspec.Struct):
    trajectory: str


class _Recording(msgspec.Struct):
    labelled: bool


class _Judge(TypedDict):
    name: str
    precision: float | None
    recall: float | None


class _Attempts(TypedDict):
    episodes: int
    successes: int


class _Counted(TypedDict):
    count: int


class _Round(msgspec.Struct, kw_only=True):
    """The fields of a round's manifest that are read back."""

    arm: str
    seed: int
    round: int
    attempts: _Attempts
    judge: _Judge
    filter: dict[str, Any] | None = None
    rows: _Counted | None = None
    ended: str | None = None


_IN_RESULTS = ("arm", "seed", "round", "attempts", "judge", "filter", "rows", "ended")


class Played(NamedTuple):
    """The key of an episode, independent of the policy that plays it."""

    task: str
    seed: int
    attempt: int
    template: str


Outcomes = Mapping[Played, bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The successes of one arm after one round, among `n` episodes with a label. `unlabelled`
    counts the episodes without one, which broke off.
    """

    arm: str
    seed: int | None
    round: int
    successes: int
    n: int
    unlabelled: int
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A paired comparison of two arms on the `pairs` episodes that both played.

    `gained` and `lost` count the episodes that the first arm solved more often or less often.
    `difference` is the first arm's success rate minus the second's; `interval` is its 95 %
    bootstrap interval over episodes. `p` is the two-sided p-value of an exact permutation test that
    swaps the arms of each episode. `p_by_task` swaps whole tasks instead; None for fewer than six
    tasks.

    With one training seed, `p` is that of McNemar's exact test. With several, `seed` is None: all
    seeds play the same episodes, so the test swaps all plays of an episode together. `p` concerns
    other episodes of these tasks, `p_by_task` other tasks. Neither test permutes training seeds
    (three seeds could at best give p = 0.25): the figures hold for these adapters, and the table
    also lists each seed by itself.
    """

    arm: str
    against: str
    seed: int | None
    round: int
    pairs: int
    gained: int
    lost: int
    difference: float
    interval: tuple[float, float] | None
    p: float
    p_by_task: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults:
    """All figures of a study. `judges` holds the manifests' figures of each arm's judge and filter;
    `by_task` the successes and episodes of each task after the last round, over all seeds.

    `learnt` in `judges` describes the attempts with training rows, by the oracle's labels: their
    number, the share that truly succeeded (`precision`), and their share of all true successes
    (`recall`).

    `judged_by` is the judge whose verdicts `scores`, `differences` and `by_task` count; None if
    they count labels.
    """

    scores: tuple[Score, ...]
    differences: tuple[Difference, ...]
    judges: tuple[Mapping[str, Any], ...]
    by_task: Mapping[str, Mapping[str, tuple[int, int]]]
    judged_by: str | None = None


def read_outcomes(
    folder: Path, judge: str | Mapping[str, Any] | None = None
) -> dict[Played, bool | None]:
    """Reads the success of each recorded episode, by its label or by a judge's verdict; None if
    undecided.

    Raises UsageError.
    """
    labels = (
        _truth(folder)
        if judge is None
        else {verdict.id: verdict.success for verdict in _verdicts(folder, judge)}
    )
    outcomes: dict[Played, bool | None] = {}
    for item in iter_trajectories(folder / TRAJECTORIES):
        seed, attempt = (item.metadata.get(name, 0) for name in ("seed", "attempt"))
        if not isinstance(seed, int) or not isinstance(attempt, int):
            raise UsageError(
                f"{folder / TRAJECTORIES}: {item.id!r}: `seed` and `attempt` in its "
                "metadata are not integers"
            )
        key = Played(item.task.id or item.task.goal, seed, attempt, get_template(item))
        if key in outcomes:
            raise UsageError(
                f"{folder}: {key.task} was played twice, with different policies or "
                "settings; delete the folder"
            )
        outcomes[key] = None if item.error is not None else labels.get(item.id)
    return outcomes


def judged_right(verdicts: Iterable[Verdict], attempts: Path) -> dict[str, Any]:
    """Computes a judge's precision, recall and error rates by the oracle's labels; None where the
    denominator is 0.
    """
    truth = _truth(attempts)
    counts: Counter[tuple[bool, bool]] = Counter()
    unscored = 0
    for verdict in verdicts:
        true = truth.get(verdict.id)
        if verdict.success is None:
            unscored += 1
        elif true is not None:
            counts[verdict.success, true] += 1
    tp, fp, fn, tn = (
        counts[pair] for pair in ((True, True), (True, False), (False, True), (False, False))
    )
    return {
        "tp": tp, "fp": fp, "fn": fn, "tn": tn, "unscored": unscored,
        "precision": _share(tp, tp + fp), "recall": _share(tp, tp + fn), "false_positive_rate": _share(fp, fp + tn),  # noqa: E501
    }  # fmt: skip


def read_rounds(out: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Returns the folder and the manifest of each finished round, after comparing the files of the
    study with its manifests, and its attempts with their labels.

    Raises UsageError that names a changed, moved or incomplete file.
    """
    for parent in (out / BASE, *out.glob("seed-*/*/round-*")):
        for folder in (parent / "attempts", parent / "evaluation"):
            file, again = folder / MANIFEST, f"delete {folder}, and its episodes are played again"
            if not file.exists():
                continue
            expect_unchanged(file, again)
            recording = read_json(file, _Recording, "not the manifest of a recording", _AGAIN)
            if recording.labelled and (lost := unlabelled_attempts(folder)):
                raise UsageError(
                    f"{folder / LABELS}: {len(lost)} attempts have lost their labels, such as "
                    f"{min(lost)}; restore the file, or {again}"
                )
    rounds = []
    for file in out.glob(f"seed-*/*/round-*/{MANIFEST}"):
        one = read_round(file)
        place = (f"seed-{one['seed']}", one["arm"], f"round-{one['round']}")
        if file.relative_to(out).parts[:-1] != place:
            raise UsageError(f"{file}: belongs to {', '.join(place)}; move it back")
        expect_unchanged(file, f"delete {file.name}, which the study's command then writes again")
        rounds.append((file.parent, one))
    return rounds


def read_round(file: Path) -> dict[str, Any]:
    """Reads the manifest of a round. Raises UsageError that names an invalid field."""
    data = read_whole(file, _REMEDY)
    decode_json(data, _Round, f"{file}: not the manifest of a round", _AGAIN)
    return decode_json(data, dict[str, Any], str(file), _AGAIN)


def verdicts_suffix(description: str | Mapping[str, Any]) -> str:
    """Returns the file name suffix for a judge's verdicts, which arms with it share."""
    data = msgspec.json.encode(description, order="deterministic")
    return f"-{hashlib.sha256(data).hexdigest()[:8]}.jsonl"


def read_study_results(out: Path) -> StudyResults:
    """Computes the figures of all finished rounds in a study's folder.

    Returns:
        The figures. Success rates are in [0, 1], with 95 % Wilson intervals.

    Raises:
        UsageError: A file was changed since the study wrote it.
    """
    rounds = read_rounds(out)
    study = read_json(out / STUDY, _Study, "not a study", _REMEDY)
    grader, arms = study.evaluation.get("judge"), [arm.name for arm in study.arms]
    for folder, one in rounds:
        if one["arm"] not in arms:
            raise UsageError(
                f"{folder / MANIFEST}: `arm` is {one['arm']!r}, but {out / STUDY} has "
                f"{', '.join(arms)}"
            )
    rounds.sort(key=lambda of: (of[1]["round"], of[1]["seed"], arms.index(of[1]["arm"])))
    base = read_outcomes(out / BASE / "evaluation", grader)
    played: dict[tuple[str, int, int], Outcomes] = {
        (one["arm"], one["seed"], one["round"]): read_outcomes(folder / "evaluation", grader)
        for folder, one in rounds
        if "ended" not in one
    }
    last = max((number for _, _, number in played), default=0)
    differences: list[Difference] = []
    for number in range(1, last + 1):
        for i, arm in enumerate(arms):
            seeds = [seed for name, seed, at in played if (name, at) == (arm, number)]
            for other in (BASE, *arms[:i]):
                pairs = [
                    (
                        played[arm, seed, number],
                        base if other == BASE else played.get((other, seed, number), {}),
                    )
                    for seed in seeds
                ]
                groups = [(seed, [pair]) for seed, pair in zip(seeds, pairs, strict=True)]
                every = [(None, pairs)] if len(pairs) > 1 else []
                differences += [
                    _difference(arm, other, seed, number, group)
                    for seed, group in (*groups, *every)
                ]
    by_task: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for arm in (BASE, *arms):
        final = [one for (name, _, at), one in played.items() if (name, at) == (arm, last)]
        for task, counted in _of_tasks([base] if arm == BASE else final).items():
            by_task[task][arm] = counted
    return StudyResults(
        scores=(
            _score(BASE, None, 0, base),
            *(_score(*key, outcomes) for key, outcomes in played.items()),
        ),
        differences=tuple(differences),
        judges=tuple(
            {
                **{name: one.get(name) for name in _IN_RESULTS},
                "learnt": _learnt(out, folder, has_rows=bool(one.get("rows"))),
            }
            for folder, one in rounds
        ),
        by_task=by_task,
        judged_by=None if grader is None else _judge_name(out / BASE / "evaluation", grader),
    )


def write_results(out: Path) -> StudyResults:
    """Writes the figures of a study into its folder.

    Raises:
        UsageError: A file was changed since the study wrote it, or the results cannot be written.
    """
    results = read_study_results(out)
    figures = msgspec.to_builtins(results)
    write_output(out / RESULTS, json.dumps(figures, indent=1, ensure_ascii=False).encode() + b"\n")
    write_output(out / TABLES, results_text(results).encode())
    write_output(out / BY_ROUND, by_round(results).encode())
    if (
        len({judge["arm"] for judge in results.judges if judge["learnt"]["precision"] is not None})
        > 1
    ):
        write_output(out / BY_PRECISION, by_precision(results).encode())
    return results


def _truth(folder: Path) -> dict[str, bool | None]:
    """Reads the labels of the episodes in a folder, by id."""
    path = folder / LABELS
    records = list(read_labels(path)) if path.exists() and path.stat().st_size else []
    if own := [record for record in records if record.annotator is None]:
        return {record.id: record.success for record in own}
    return gold_labels(records)[1]


def _verdicts(folder: Path, judge: str | Mapping[str, Any]) -> list[Verdict]:
    """Reads a judge's last verdict on each episode in a folder."""
    files = sorted(folder.glob(f"verdicts-*{verdicts_suffix(judge)}"))
    return list({verdict.id: verdict for file in files for verdict in read_verdicts(file)}.values())


def _judge_name(folder: Path, judge: str | Mapping[str, Any]) -> str:
    """Returns the judge's name in tables, with the name of its model."""
    found = next((verdict.evaluator for verdict in _verdicts(folder, judge)), None)
    if found is None:
        return judge if isinstance(judge, str) else str(judge.get("evaluator"))
    return f"{found.name} ({found.model})" if found.model else found.name


def _learnt(out: Path, folder: Path, *, has_rows: bool) -> dict[str, Any]:
    """Computes precision and recall of the attempts that the round in `folder` learnt from."""
    number = int(folder.name.rpartition("-")[2])
    truth = _truth(out / BASE / "attempts")
    for earlier in range(2, number + 1):
        truth |= _truth(folder.with_name(f"round-{earlier}") / "attempts")
    rows = folder / ROWS
    attempts = {
        decode_json(line.data, _Row, f"{rows}:{line.number}: not a row", _REMEDY).trajectory
        for line in (read_lines(rows) if has_rows else ())
    }
    decided = [success for id in attempts if (success := truth.get(id)) is not None]
    right, successes = sum(decided), sum(success is True for success in truth.values())
    return {
        "attempts": len(attempts), "successes": right,
        "precision": _share(right, len(decided)), "recall": _share(right, successes),
    }  # fmt: skip


def _score(arm: str, seed: int | None, number: int, outcomes: Outcomes) -> Score:
    decided = [success for success in outcomes.values() if success is not None]
    k, n = sum(decided), len(decided)
    interval = wilson(k / n, n) if n else (0.0, 1.0)
    return Score(
        arm=arm,
        seed=seed,
        round=number,
        successes=k,
        n=n,
        unlabelled=len(outcomes) - n,
        interval=interval,
    )


def _difference(
    arm: str,
    against: str,
    seed: int | None,
    number: int,
    played: Sequence[tuple[Outcomes, Outcomes]],
) -> Difference:
    """Compares two arms; `played` has one pair of outcomes per training seed."""
    more: Counter[Played] = Counter()
    plays: Counter[Played] = Counter()
    for first, second in played:
        for key, success in first.items():
            other = second.get(key)
            if success is not None and other is not None:
                more[key] += int(success) - int(other)
                plays[key] += 1
    tasks: Counter[str] = Counter()
    for key, by in more.items():
        tasks[key.template] += by
    return Difference(
        arm=arm,
        against=against,
        seed=seed,
        round=number,
        pairs=len(more),
        gained=sum(by > 0 for by in more.values()),
        lost=sum(by < 0 for by in more.values()),
        difference=more.total() / plays.total() if plays else 0.0,
        interval=ratio_interval([(more[key], n) for key, n in plays.items()], -1.0)
        if plays
        else None,
        p=swapped_p(more.values()),
        p_by_task=swapped_p(tasks.values()) if len(tasks) >= _FEWEST_TASKS else None,
    )


def swapped_p(differences: Iterable[int]) -> float:
    """Returns the two-sided p-value of the exact sign-flip permutation test of these differences.

    All sign assignments are counted. Differences of -1, 0 and 1 give McNemar's exact test.
    """
    given = [by for by in differences if by]
    ways = {0: 1}  # the number of sign assignments by sum
    for by in given:
        reached: Counter[int] = Counter()
        for total, count in ways.items():
            reached[total + by] += count
            reached[total - by] += count
        ways = reached
    as_far = sum(count for total, count in ways.items() if abs(total) >= abs(sum(given)))
    return float(as_far / 2 ** len(given))


def _of_tasks(several: Sequence[Outcomes]) -> dict[str, tuple[int, int]]:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for outcomes in several:
        for played, success in outcomes.items():
            if success is not None:
                counts[played.template][0] += success
                counts[played.template][1] += 1
    return {name: (k, n) for name, (k, n) in counts.items()}


def results_text(results: StudyResults) -> str:
    """Formats the figures of a study as Markdown."""
    ended = [
        f"{m['arm']}, seed {m['seed']}, ended in round {m['round']}: {m['ended']}"
        for m in results.judges
        if m["ended"]
    ]
    parts = [
        "# Filtered behavioural cloning",
        *(() if results.judged_by is None else (_JUDGED.format(results.judged_by),)),
        "Successes on the held-out episodes, with 95 % Wilson intervals. All training seeds play "
        "the same episodes, so the interval over all seeds is as wide as that of one seed.",
        _table(
            "arm|training seed|round|successes|share|interval|without a label"
            if results.judged_by is None
            else "arm|training seed|round|judged successful|share|interval|without a verdict",
            _score_rows(results.scores),
        ),
        "Paired comparison on the same episodes: the episodes that only one arm solved (over all "
        "seeds: solved more often), the difference with its 95 % bootstrap interval over episodes, "
        "and exact two-sided permutation tests that swap the arms by episode (with one seed, "
        "McNemar's test) and by task. Training seeds are not resampled.",
        _table(
            "arm|against|training seed|round|episodes|only it|only the "
            "other|difference|interval|p|p by task",
            map(_difference_cells, results.differences),
        ),
        "Training attempts, by the oracle's labels: precision and recall of the judge on all "
        "attempts, and of the attempts with training rows.",
        _table(
            "arm|training seed|round|attempts|true successes|judge|judge precision|judge "
            "recall|trained on|of them successes|precision|recall|rows",
            map(_judge_cells, results.judges),
        ),
        *ended,
        "By task, after the last round, over all training seeds.",
        _by_task(results.by_task),
    ]
    return "\n\n".join(parts) + "\n"


def _score_rows(scores: Sequence[Score]) -> Iterator[Sequence[Cell]]:
    """Yields a row for each score. If an arm has several seeds, a row for all of them follows."""
    groups: dict[tuple[int, str], list[Score]] = defaultdict(list)
    for score in scores:
        groups[score.round, score.arm].append(score)
    for group in groups.values():
        for one in group:
            yield _score_cells(one, _seed(one.seed, "-"))
        if len(group) > 1:
            yield _score_cells(_pooled(group), "all")


def _score_cells(score: Score, seed: str) -> Sequence[Cell]:
    share, (low, high) = _percent(_share(score.successes, score.n)), score.interval
    solved, interval = f"{score.successes}/{score.n}", f"{low:.1%} to {high:.1%}"
    return score.arm, seed, score.round, solved, share, interval, score.unlabelled


def _difference_cells(d: Difference) -> Sequence[Cell]:
    interval = "-" if d.interval is None else "{:+.1%} to {:+.1%}".format(*d.interval)
    by_task = "-" if d.p_by_task is None else f"{d.p_by_task:.2g}"
    counts = (d.arm, d.against, _seed(d.seed, "all"), d.round, d.pairs, d.gained, d.lost)
    return *counts, f"{d.difference:+.1%}", interval, f"{d.p:.2g}", by_task


def _judge_cells(one: Mapping[str, Any]) -> Sequence[Cell]:
    judge, attempts, learnt = one["judge"], one["attempts"], one["learnt"]
    shares = [_percent(of[name]) for of in (judge, learnt) for name in ("precision", "recall")]
    return (
        *(one[key] for key in ("arm", "seed", "round")),
        attempts["episodes"],
        attempts["successes"],
        judge["name"],
        *shares[:2],
        learnt["attempts"],
        learnt["successes"],
        *shares[2:],
        (one["rows"] or {}).get("count", 0),
    )


def _by_task(by_task: Mapping[str, Mapping[str, tuple[int, int]]]) -> str:
    arms = list(dict.fromkeys(arm for row in by_task.values() for arm in row))
    cells = (
        [task, *("{}/{}".format(*row[arm]) if arm in row else "-" for arm in arms)]
        for task, row in sorted(by_task.items())
    )
    return markdown_table(["task", *arms], cells)


def _table(head: str, rows: Iterable[Sequence[Cell]]) -> str:
    return markdown_table(head.split("|"), rows)


def _seed(seed: int | None, otherwise: str) -> str:
    return otherwise if seed is None else str(seed)


def _share(part: int, total: int) -> float | None:
    return part / total if total else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def by_round(results: StudyResults) -> str:
    """Draws success by round, one line per arm over all seeds; round 0 is the untrained policy."""
    lines = []
    for arm in dict.fromkeys(score.arm for score in results.scores if score.arm != BASE) or (BASE,):
        rounds: dict[int, list[Score]] = defaultdict(list)
        for score in results.scores:
            if score.arm in (arm, BASE):
                rounds[score.round].append(score)
        lines.append(
            PlotLine(arm, [_point(number, scores) for number, scores in sorted(rounds.items())])
        )
    by = "" if results.judged_by is None else f", by the judge {results.judged_by}"
    return line_chart(f"Success on the held-out episodes{by}", "round", lines, whole=True)


def by_precision(results: StudyResults) -> str:
    """Draws success after the last round against the precision of each arm's training attempts.

    Each arm has a mark with an interval over all training seeds, and a dot for each seed. The
    untrained policy is a line. An arm without training has no mark.
    """
    last = max((score.round for score in results.scores), default=0)
    precisions: dict[str, dict[int, float]] = defaultdict(dict)
    for judge in results.judges:
        if judge["round"] == last and judge["learnt"]["precision"] is not None:
            precisions[judge["arm"]][judge["seed"]] = judge["learnt"]["precision"]
    lines = []
    for arm, of_seed in precisions.items():
        scores = [
            one
            for one in results.scores
            if (one.arm, one.round) == (arm, last) and one.n and one.seed in of_seed
        ]
        dots = [
            (of_seed[one.seed], one.successes / one.n) for one in scores if one.seed is not None
        ]
        if scores:
            lines.append(
                PlotLine(
                    arm, [_point(fmean(of_seed.values()), scores, dots if len(dots) > 1 else ())]
                )
            )
    untrained = next(
        (
            Level("untrained", one.successes / one.n, *one.interval)
            for one in results.scores
            if one.arm == BASE and one.n
        ),
        None,
    )
    across = "share of the training attempts that truly succeeded"
    by = "" if results.judged_by is None else f" (successes: {results.judged_by})"
    return line_chart(
        f"Success after training, by precision of the training attempts{by}",
        across,
        lines,
        level=untrained,
        close=True,
    )


def _point(
    x: float, scores: Sequence[Score], dots: Sequence[tuple[float, float]] = ()
) -> PlotPoint:
    all_ = _pooled(scores)
    share = _share(all_.successes, all_.n) or 0.0
    return PlotPoint(x, share, *all_.interval, f"{all_.successes} of {all_.n}", dots)


def _pooled(scores: Sequence[Score]) -> Score:
    """Adds up the scores of all training seeds. All seeds play the same episodes, so the interval
    is as wide as that of one seed.
    """
    successes, n = sum(score.successes for score in scores), sum(score.n for score in scores)
    episodes = round(n / len(scores))
    return replace(
        scores[0],
        seed=None,
        successes=successes,
        n=n,
        unlabelled=sum(score.unlabelled for score in scores),
        interval=wilson(successes / n, episodes) if episodes else (0.0, 1.0),
    )
