"""`prill calibrate`: from a judge's scores to probabilities, and to a threshold that serves a purpose."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from math import nan

from prill.commands.options import add_label_options
from prill.errors import UsageError
from prill.evaluators.fitted.calibration import Bin
from prill.evaluators.fitted.overlap import digests_of, fitted_caution
from prill.evaluators.labels import task_of
from prill.evaluators.meta.agreement import pair
from prill.evaluators.meta.calibration_fit import CalibrationResult, Goal, Operating, calibrate
from prill.evaluators.metrics import FEW_CLUSTERS
from prill.files.outputs import check_output, words_beside, write_output
from prill.store import encode, read_labels, read_trajectories, read_verdicts
from prill.ui.report.plots import reliability_svg

_BAR = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = (
        "Use labels that the judge has not been fitted to: on its own it is surer, and better, than on others. For a fitted "
        "judge that means the verdicts of `prill fit --out-of-fold`. "
        "`prill score --calibration FILE` puts the file to use."
    )
    parser.add_argument("verdicts", metavar="VERDICTS", help="verdict file of one judge, as `prill score` writes it")
    parser.add_argument("labels", metavar="LABELS", help="label file")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where the calibration goes (JSON)")
    parser.add_argument(
        "--method", choices=("auto", "isotonic", "platt"), default="auto", help="platt: a curve with two parameters; isotonic: "
        "any rising steps; auto (default): platt, or isotonic where that is clearly better on runs held out"
    )  # fmt: skip
    add_label_options(parser)
    parser.add_argument(
        "--trajectories", metavar="TRAJ", help="the judged file: runs of one task are then never both fitted to and held out"
    )
    parser.add_argument(
        "--target-precision", type=_share, metavar="P", help="lowest threshold with this precision, with 95 %% confidence"
    )
    parser.add_argument("--cost-fp", type=_cost, metavar="A", help="what a false positive costs; goes with --cost-fn")
    parser.add_argument("--cost-fn", type=_cost, metavar="B", help="what a false negative costs, in the same unit")
    parser.add_argument("--plot", metavar="FILE", help="reliability diagram (SVG)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="for the folds of the cross-validation (default 0)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    """Writes the calibration and prints what it does; 0. Raises UsageError."""
    goal = _goal(args)
    inputs = [args.verdicts, args.labels, args.trajectories]
    check_output(args.output, "a calibration", inputs)
    if args.plot:
        check_output(args.plot, "a diagram", [*inputs, args.output], parameter="plot")
    tasks = digests = None
    if args.trajectories:
        known = {run.id: (task_of(run), digests_of(run)) for run in read_trajectories(args.trajectories, on_error="skip")}
        tasks = {id: task for id, (task, _) in known.items()}
        digests = {id: digest for id, (_, digest) in known.items()}
    pairing = pair(read_verdicts(args.verdicts), read_labels(args.labels), args.source, args.truth)
    result = calibrate(pairing, args.method, goal, tasks, args.seed, digests)
    judge, method = result.calibration.evaluator, result.calibration.map.method
    write_output(args.output, encode(result.calibration))
    if args.plot:
        write_output(args.plot, reliability_svg(f"{judge.name}, {method}", result.before, result.after).encode())
    print(encode(result).decode().rstrip() if args.json else page(result), file=words_beside(args.output, args.plot))
    print(f"calibration of {judge.name} -> {args.output}", file=sys.stderr)
    if args.json and (caution := fitted_caution(judge.name, result.fitted)):
        print(f"prill calibrate: {caution}", file=sys.stderr)
    return 0


def page(result: CalibrationResult) -> str:
    """The calibration for a person to read."""
    fit = result.calibration
    lines = [
        f"Judge: {fit.evaluator.name} {fit.evaluator.version}" + (f", {fit.evaluator.model}" if fit.evaluator.model else ""),
        f"Labels: {fit.source}, {fit.labelled} scored runs, {fit.successes} successes"
        + (f"; left out {fit.unscored} unscored" if fit.unscored else ""),
        *([f"Warning: {caution}"] if (caution := fitted_caution(fit.evaluator.name, result.fitted)) else []),
        f"Held out: {fit.folds} folds by {fit.grouped_by}",
        f"Method: {fit.map.method} ({fit.method_rule})",
        "",
        f"{'':<36}{'before':>8}{'after':>8}",
        f"{'Brier score':<36}{fit.before.brier:>8.4f}{fit.after.brier:>8.4f}",
        f"{'calibration error, 10 equal widths':<36}{fit.before.calibration_error:>8.4f}{fit.after.calibration_error:>8.4f}",
        "",
        *_diagram("before", result.before),
        "",
        *_diagram(f"after ({fit.map.method})", result.after),
        "",
    ]
    if result.values <= 2:
        lines += [
            f"The judge gave {result.values} different score{'s' * (result.values != 1)}: there is nothing to calibrate beyond "
            "them. A model that returns log-probabilities gives finer ones.",
            "",
        ]
    lines += [
        f"Threshold {fit.threshold:g}: {fit.rule}",
        f"  on all {fit.labelled} runs: {_figures(result.chosen)}",
        f"  chosen on some folds, tried on the other: {_figures(result.tried, bound=True)}",
    ]
    if result.missed:
        lines.append("  held out, that is less than was asked for: the runs are too few for this threshold to be trusted")
    if result.cost is not None and result.constant_cost is not None:
        lines.append(
            f"  cost of a run, held out: {result.cost:.4f}; with the cheaper constant answer {result.constant_cost:.4f}"
        )
    lines.append("Bounds take runs as independent; runs of one task are not quite, so leave some room.")
    if result.clusters < FEW_CLUSTERS:
        units = "tasks" if fit.grouped_by == "task" else "runs"
        lines.append(f"Warning: {result.clusters} {units}; of fewer than {FEW_CLUSTERS} no curve and no bound can be trusted")
    return "\n".join(lines)


def _figures(operating: Operating, *, bound: bool = False) -> str:
    if operating.precision is None:
        return "nothing is called a success"
    recall = "-" if operating.recall is None else f"{operating.recall:.3f}"
    # The runs that a threshold was chosen on say too much of it: there the rule says what is certain.
    least = f"; at least {operating.bound:.3f} with 95 % confidence" if bound else ""
    return f"precision {operating.precision:.3f} ({operating.right} of {operating.called}{least}), recall {recall}"


def _diagram(name: str, bins: Sequence[Bin]) -> list[str]:
    lines = [f"{name:<18}{'runs':>6}{'mean score':>12}{'successes':>11}"]
    for b in bins:
        bar = ("█" * round(b.success_rate * _BAR)).ljust(_BAR, "·")
        place = min(_BAR - 1, int(b.mean_score * _BAR))
        lines.append(
            f"{f'{b.low:.1f} to {b.high:.1f}':<18}{b.count:>6}{b.mean_score:>12.3f}{b.success_rate:>11.3f}"
            f"  {bar[:place]}|{bar[place + 1 :]}"
        )
    return lines


def _goal(args: argparse.Namespace) -> Goal:
    if (args.cost_fp is None) != (args.cost_fn is None):
        raise UsageError("--cost-fp and --cost-fn go together: only their ratio matters")
    if args.cost_fp is None:
        return Goal(precision=args.target_precision)
    if args.target_precision is not None:
        raise UsageError("choose one of --target-precision and the costs")
    return Goal(costs=(args.cost_fp, args.cost_fn))


def _share(text: str) -> float:
    number = _number(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError("give a precision between 0 and 1")
    return number


def _cost(text: str) -> float:
    number = _number(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("give a cost above 0")
    return number


def _number(text: str) -> float:
    """Not a number compares with nothing, so whoever calls this says what was wanted."""
    try:
        return float(text)
    except ValueError:
        return nan
