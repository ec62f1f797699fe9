"""`prill watch`: whether a reward goes wrong, by the observations of a run or by its verdicts in order."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import msgspec

from prill.commands.options import WideHelp, add_options_of, options_given
from prill.errors import InputError, UsageError
from prill.files.lines import read_lines
from prill.files.outputs import check_output, content_of_line, is_stdout, words_beside, write_output
from prill.refine.rewards.watch.live import scores_of
from prill.refine.rewards.watch.page import headline, watch_page
from prill.refine.rewards.watch.records import WatchRecord, name_of, of_verdicts, opinion_of, read_watch, whole_verdicts
from prill.refine.rewards.watch.signs import Tally, WatchReport
from prill.refine.rewards.watch.spec import WatchSpec
from prill.registry import read_options
from prill.types import Opinion

_EXIT_QUIET, _EXIT_ALARM, _EXIT_SOME = 0, 1, 3
_LIVE = ("observations", "canaries", "canary_labels", "canary_every", "student")  # of a watch that looks on
_MOST_PROBLEMS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.formatter_class = WideHelp
    parser.usage = "prill watch LOG... [-o PAGE] [options]"
    parser.description = (
        "Whether a reward goes wrong: canaries that turn over, scores that drift, verdicts that are missing, and a judge that\n"
        "finds the agent ever better while a second one finds it worse.\n"
        "  prill watch watch.jsonl -o watch.html\n"
        "  prill watch verdicts.jsonl --student student-verdicts.jsonl"
    )
    parser.epilog = (
        "Exit codes: 0 no alarm, 1 an alarm stands at the end of a log, 3 no alarm but some lines could not be read, "
        "2 nothing could be read or bad usage."
    )
    parser.add_argument(
        "logs", nargs="+", metavar="LOG", help="observations of `prill serve` or `prill.reward`, or verdicts in order of time"
    )
    parser.add_argument("-o", "--output", metavar="PAGE", help="the page to write, such as watch.html")
    parser.add_argument(
        "--student", nargs="+", default=[], metavar="V", help="verdicts of a second judge on the same ids, for verdict files"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    add_options_of(parser.add_argument_group("what is an alarm"), WatchSpec, leave_out=_LIVE)


def run(args: argparse.Namespace) -> int:
    """Reads the logs; see `configure` for the exit codes."""
    spec = WatchSpec(**read_options(WatchSpec, _limits(args), "a watch", lax=True))
    if args.output:
        check_output(args.output, "a page of a watch", [*args.logs, *args.student, spec.reference])
    problems: list[str] = []
    students = {id: said for path in args.student for id, said in _opinions(path, problems)}
    reports = [(path, _report(path, spec, students, problems)) for path in args.logs]
    for problem in problems[:_MOST_PROBLEMS]:
        print(f"prill watch: {problem}", file=sys.stderr)
    if len(problems) > _MOST_PROBLEMS:
        print(f"prill watch: and {len(problems) - _MOST_PROBLEMS} more broken lines", file=sys.stderr)
    if not any(report.verdicts or report.rounds for _, report in reports):
        raise UsageError(
            f"{', '.join(args.logs)}: no line could be read"
            if problems
            else f"{', '.join(args.logs)}: there is nothing in these files"
        )
    if args.output:
        write_output(args.output, watch_page(reports).encode())
    out = words_beside(args.output) if args.output and is_stdout(args.output) else sys.stdout
    if args.json:
        print(json.dumps([{"log": path, **_as_table(report)} for path, report in reports]), file=out)
    else:
        for path, report in reports:
            print(_words(path, report), file=out)
    if any(report.alarms for _, report in reports):
        return _EXIT_ALARM
    return _EXIT_SOME if problems else _EXIT_QUIET


def _limits(args: argparse.Namespace) -> dict[str, Any]:
    given = options_given(args, WatchSpec)
    given.pop("student", None)  # here it names verdicts
    return given


def _opinions(path: str, problems: list[str]) -> Iterator[tuple[str, Opinion]]:
    for verdict in whole_verdicts(path, problems.append):
        yield verdict.id, opinion_of(verdict, name_of(verdict.evaluator))


def _report(path: str, spec: WatchSpec, students: dict[str, Opinion], problems: list[str]) -> WatchReport:
    from prill.cli.showing import progress_bar

    tally = Tally(spec, scores_of(spec.reference))
    records = _records(path, students, problems)
    try:
        for record in progress_bar(records, desc=path, unit=" lines", disable=None, leave=False):
            tally.add(record)
    except InputError as error:  # a damaged archive: what came before it counts
        problems.append(str(error))
    return tally.report()


def _records(path: str, students: dict[str, Opinion], problems: list[str]) -> Iterator[WatchRecord]:
    """Observations, whichever of the two kinds of file this is."""
    first = next((line.data for line in read_lines(path) if content_of_line(line.data)), b"")
    if content_of_line(first) == "verdicts":
        return of_verdicts(path, students, problems.append)
    if students:
        raise UsageError(f"{path}: observations have the second judge in them already; it is for verdict files")
    return read_watch(path, problems.append)


def _as_table(report: WatchReport) -> dict[str, Any]:
    table = {key: value for key, value in asdict(report).items() if key not in ("course", "lost", "trouble")}
    return {**table, "usage": msgspec.to_builtins(report.usage), "alarms": [sign.name for sign in report.alarms]}


def _words(path: str, report: WatchReport) -> str:
    who = f" by {report.judge}" if report.judge else ""
    lines = [f"{path}: {headline([(path, report)])}; {report.verdicts:,} verdicts, {report.unscored:,} unscored{who}"]
    for sign in report.signs:
        since = f" (since verdict {sign.since:,})" if sign.state in ("alarm", "notice") else ""
        lines.append(f"  {sign.state:<8} {sign.name:<13} {sign.words}{since}")
    lines += [
        f"  turned over: {one.id}, label {one.label}, at first {one.at_first}, now {one.now}" for one in report.turned[:10]
    ]
    return "\n".join(lines)
