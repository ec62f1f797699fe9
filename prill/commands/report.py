"""`prill report`: one HTML page with screenshots, verdicts and labels."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from prill.commands.options import add_label_options, expected, open_folders, positive
from prill.evaluators.fitted.calibration import read_calibration
from prill.files.checksums import Checksums
from prill.files.kinds import TRAJECTORIES
from prill.files.lines import is_stream
from prill.files.outputs import check_output, is_stdout, words_beside
from prill.refine.outcomes import LESSONS, RESULTS, SETTINGS, VERDICTS, read_lessons, read_results
from prill.run_folder import LABELS
from prill.store import Intake, encode, read_labels
from prill.ui.report.entries import Retry, read_judges
from prill.ui.report.page import ReportSummary, write_report

_EXIT_ALL, _EXIT_SOME = 0, 3
_MOST_PROBLEMS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = "Exit codes: 0 all shown, 3 some lines or images could not be read, 2 nothing could be read or bad usage."
    parser.add_argument(
        "trajectories", nargs="+", metavar="TRAJ", help="trajectory file (.jsonl, .jsonl.gz), folder of them, or -"
    )
    parser.add_argument("-o", "--output", required=True, metavar="PAGE", help="the page to write, such as report.html")
    parser.add_argument("--verdicts", nargs="+", default=[], metavar="V", help="verdict files: the judges, side by side")
    parser.add_argument("--labels", nargs="+", default=[], metavar="L", help="label files")
    add_label_options(parser)
    parser.add_argument("--embed", action="store_true", help="put the images into the page instead of linking to them")
    parser.add_argument("--no-transcripts", action="store_true", help="leave out what models were asked and answered")
    parser.add_argument("--limit", type=positive, metavar="N", help="show the first N trajectories only")
    parser.add_argument("--threshold", type=_share, metavar="T", help="the score to mark on the precision-recall curves")
    parser.add_argument(
        "--calibration", nargs="+", default=[], metavar="C", help="calibrations of these judges: their thresholds are marked"
    )
    parser.add_argument(
        "--by",
        metavar="KEY,…",
        type=lambda words: [word.strip() for word in words.split(",") if word.strip()],
        default=[],
        help="more to filter by besides site, agent, platform and truncated: task, or keys of the trajectories' metadata",
    )
    parser.add_argument("--title", default="prill report", metavar="TEXT", help="what stands above the page")
    parser.add_argument("--json", action="store_true", help="print what the page holds as JSON")


def run(args: argparse.Namespace) -> int:
    """Writes the page; see `configure` for the exit codes."""
    from prill.cli.showing import progress_bar

    retries = _of_retries(args)
    open_folders(args)
    check_output(args.output, "a report", [*args.trajectories, *args.verdicts, *args.labels, *args.calibration])
    judges = read_judges(args.verdicts, transcripts=not args.no_transcripts)
    calibrations = [read_calibration(path) for path in args.calibration]
    labels = chain.from_iterable(map(read_labels, args.labels))
    total = expected(args.trajectories, args.limit)
    intake = Intake(args.trajectories, args.limit)
    try:
        with progress_bar(total=total, unit="traj", dynamic_ncols=True, file=sys.stderr, delay=0.5) as bar:
            items = (item for _, item in intake)
            summary = write_report(
                args.output,
                items,
                judges,
                labels,
                source=args.source,
                truth=args.truth,
                embed=args.embed,
                threshold=args.threshold,
                calibrations=calibrations,
                by=args.by,
                retries=retries,
                title=args.title,
                progress=bar.update,
            )
    finally:
        intake.close()
    size = None if is_stdout(args.output) or is_stream(args.output) else Path(args.output).stat().st_size
    if args.json:
        counts = {"output": args.output, "bytes": size, **_counts(summary)}
        print(encode(counts).decode().rstrip(), file=words_beside(args.output))
    else:
        weight = "" if size is None else f", {size / 1e6:.1f} MB"
        print(f"{args.output}: {summary.trajectories} trajectories, judges: {len(judges)}{weight}", file=sys.stderr)
    for problem in _problems(summary):
        # Names come from files of others: no control sequence of theirs reaches the terminal.
        print("prill report: " + "".join(c if c.isprintable() else "?" for c in problem), file=sys.stderr)
    return _EXIT_SOME if summary.broken or summary.missing else _EXIT_ALL


def _of_retries(args: argparse.Namespace) -> dict[str, Retry] | None:
    """What came of each attempt in the folders of `prill reflexion`, whose verdicts and labels count unless others are named.

    None where there is no such folder.
    """
    folders = [folder for folder in map(Path, args.trajectories) if _was_retried(folder)]
    if not folders:
        return None
    args.trajectories = [str(Path(path) / TRAJECTORIES) if Path(path) in folders else path for path in args.trajectories]
    args.verdicts = args.verdicts or [str(path) for folder in folders if _filled(path := folder / VERDICTS)]
    args.labels = args.labels or [str(path) for folder in folders if _filled(path := folder / LABELS)]
    found: dict[str, Retry] = {}
    for folder in folders:
        Checksums(folder).check()
        for id, lesson in read_lessons(folder / LESSONS).items():
            found[id] = Retry(lesson=lesson.text, problem=lesson.problem)
        if not (folder / RESULTS).is_file():  # the run has not ended
            continue
        for task in read_results(folder).tasks:
            for place, attempt in enumerate(task.attempts):
                found[attempt.id] = Retry(
                    lesson=attempt.lesson,
                    problem=attempt.problem,
                    ended=task.ended if attempt is task.attempts[-1] else None,
                    answer=place == task.answer,
                )
    return found


def _was_retried(folder: Path) -> bool:
    return (folder / SETTINGS).is_file() or (folder / LESSONS).is_file()


def _filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _counts(summary: ReportSummary) -> dict[str, Any]:
    return {
        "trajectories": summary.trajectories,
        "broken": len(summary.broken),
        "missing_images": len(summary.missing),
        "images_elsewhere": summary.outside,
        "fitted": summary.fitted,
    }


def _problems(summary: ReportSummary) -> Iterator[str]:
    yield from summary.broken[:_MOST_PROBLEMS]
    if len(summary.broken) > _MOST_PROBLEMS:
        yield f"… and {len(summary.broken) - _MOST_PROBLEMS} more lines that could not be read"
    yield from (f"{path}: missing, or no image" for path in summary.missing[:_MOST_PROBLEMS])
    if len(summary.missing) > _MOST_PROBLEMS:
        yield f"… and {len(summary.missing) - _MOST_PROBLEMS} more images that cannot be shown"
    if summary.outside:
        yield f"{summary.outside} images lie outside the page's folder: they are found only from here; --embed puts them in"
    yield from (caution for name, overlap in summary.fitted.items() if (caution := overlap.caution(name)))


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text}: a score lies between 0 and 1")
    return value
