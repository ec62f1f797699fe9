"""`prill annotate`: label trajectories by hand, in a browser."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import chain
from typing import get_args

import msgspec

from prill.captioner.files import Choice
from prill.captioner.training import DECISIONS
from prill.commands.options import open_folders
from prill.errors import UsageError
from prill.files.outputs import check_output, expect_place
from prill.store import read_labels, read_verdicts
from prill.types import LabelRecord
from prill.ui.annotate.captions import CaptionSite, open_site
from prill.ui.annotate.label_log import SOURCE, LabelLog
from prill.ui.annotate.server import serving
from prill.ui.annotate.session import PairAgreement, Reveal, Session
from prill.ui.annotate.worklist import Worklist

_EXIT_ALL, _EXIT_SOME = 0, 3
_MOST_PROBLEMS = 20
_MAX_NAME = 200  # characters; it stands on every line of the label file


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a sitting leaves. `written` counts its decisions, `done` all of this annotator's in these files."""

    file: str
    annotator: str
    written: int
    done: int
    left: int
    revised: int
    pairs: tuple[PairAgreement, ...]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = (
        "The page asks for success, failure, not executable or unsure, for a label of each step if wanted, and for a note. "
        "Every decision is on disk before the next trajectory comes up; the same command goes on where it was. "
        "Exit codes: 0 ended, 3 ended and some lines are broken and left out, 2 nothing could be read or bad usage."
    )
    parser.add_argument("trajectories", nargs="*", metavar="TRAJ", help="trajectory files or folders")
    parser.add_argument("-o", "--output", metavar="LABELS", help="label file; labels of others in it are kept")
    parser.add_argument(
        "--captions",
        metavar="FILE",
        help="in place of trajectories: accept, mend or reject the captions of a file of prill caption; the decisions go to -o "
        "(default: decisions.jsonl beside it)",
    )
    parser.add_argument("--annotator", required=True, metavar="NAME", help="whose labels these are")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port on this machine (default: any that is free)")
    parser.add_argument(
        "--earlier", nargs="+", default=[], metavar="LABELS", help="labels of other people, to show agreement with"
    )
    parser.add_argument(
        "--verdicts", nargs="+", default=[], metavar="V", help="verdict files, shown for a trajectory once it has your label"
    )
    parser.add_argument(
        "--order", choices=("file", "random"), default="file", help="random: the same for the same seed, also when files grow"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random order (default 0)")
    parser.add_argument("--limit", type=_positive, metavar="N", help="only the first N, in that order")
    visibility = parser.add_mutually_exclusive_group()
    visibility.add_argument("--blind", action="store_true", help="never show others' labels, agreement or verdicts on the page")
    visibility.add_argument(
        "--show-verdicts", action="store_true", help="show verdicts before the label too; they will sway you"
    )
    parser.add_argument("--json", action="store_true", help="print the address and the summary as a line of JSON each")


def run(args: argparse.Namespace) -> int:
    """Serves the page until interrupted; see `configure` for the exit codes. Raises UsageError before it serves."""
    annotator = _name(args.annotator)
    if args.captions:
        return _captions(args, annotator)
    if not args.trajectories or not args.output:
        raise UsageError("name trajectories and, with -o, the label file; or a caption file, with --captions")
    open_folders(args)
    expect_place(args.output, "labels, which are continued,")
    check_output(args.output, "labels", [*args.trajectories, *args.verdicts], continued=True)
    worklist = Worklist(args.trajectories, order=args.order, seed=args.seed, limit=args.limit)
    for line in worklist.broken[:_MOST_PROBLEMS]:
        print(f"prill annotate: left out: {line.message}", file=sys.stderr)
    if len(worklist.broken) > _MOST_PROBLEMS:
        print(f"prill annotate: … and {len(worklist.broken) - _MOST_PROBLEMS} more", file=sys.stderr)
    earlier = _people(args.earlier, annotator)
    verdicts = chain.from_iterable(map(read_verdicts, args.verdicts))
    reveal: Reveal = "never" if args.blind else "before" if args.show_verdicts else "after"
    with LabelLog(args.output, annotator) as log:
        session = Session(worklist, log, earlier=earlier, verdicts=verdicts, reveal=reveal)
        asyncio.run(_until_interrupted(session, args.port, lambda url: _announce(url, session, args.json)))
        _conclude(session, args.output, args.json)
    worklist.close()
    return _EXIT_SOME if worklist.broken else _EXIT_ALL


def _name(text: str) -> str:
    """The name to write beside every label. Raises UsageError for what is none."""
    name = text.strip()
    if not name:
        raise UsageError("--annotator is empty; give a name, so that labels of several people can be told apart")
    if len(name) > _MAX_NAME:
        raise UsageError(f"--annotator has {len(name):,} characters; at most {_MAX_NAME} are taken")
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        raise UsageError(f"--annotator {name!a}: a name has no control characters, and is UTF-8")
    return name


def _captions(args: argparse.Namespace, annotator: str) -> int:
    others = ("trajectories", "earlier", "verdicts", "seed", "limit", "blind", "show_verdicts")
    if given := [name for name in others if getattr(args, name)] + ["order"] * (args.order != "file"):
        raise UsageError(f"{', '.join(given).replace('_', '-')}: of trajectories only, and --captions asks about captions")
    output = args.output or os.path.join(os.path.dirname(args.captions), DECISIONS)
    expect_place(output, "decisions, which are continued,")
    check_output(output, "captions", [args.captions], continued=True)
    site, log = open_site(args.captions, output, annotator)
    with log:
        total = len(site.captions)

        def announce(url: str) -> None:
            if args.json:
                print(json.dumps({"url": url, "done": site.done, "left": total - site.done}), flush=True)
                return
            print(f"{total} captions, {site.done} decided by {annotator}, {total - site.done} left")
            print(f"Open {url}\nEnd with Ctrl-C; every decision is on disk when the next caption comes up.", flush=True)

        asyncio.run(_until_interrupted(site, args.port, announce))
        choices = Counter(site.decisions[caption.id].choice for caption in site.captions if caption.id in site.decisions)
        counts = {name: choices[name] for name in get_args(Choice)}
        if args.json:
            print(json.dumps({"file": output, "written": site.written, "left": total - site.done, **counts}))
        else:
            words = ", ".join(f"{count} {name}" for name, count in counts.items())
            print(f"\n{output}: {site.written} decided now; of {total} captions {words}, {total - site.done} left")
    return _EXIT_ALL


async def _until_interrupted(session: Session | CaptionSite, port: int, announce: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    async with serving(session, port) as url:
        announce(url)
        await stop.wait()


def _announce(url: str, session: Session, as_json: bool) -> None:
    done, total = session.done, len(session.worklist)
    if as_json:
        print(msgspec.json.encode({"url": url, "done": done, "left": total - done}).decode(), flush=True)
        return
    print(f"{total} trajectories, {done} labelled by {session.log.annotator}, {total - done} left")
    print(f"Open {url}\nEnd with Ctrl-C; every decision is on disk when the next trajectory comes up.", flush=True)


def _conclude(session: Session, path: str, as_json: bool) -> None:
    done = session.done
    summary = Summary(
        file=path,
        annotator=session.log.annotator,
        written=session.written,
        done=done,
        left=len(session.worklist) - done,
        revised=session.revised,
        pairs=session.pairs,
    )
    if as_json:
        print(msgspec.json.encode(asdict(summary)).decode())
        return
    print(f"\n{path}: {summary.written} labelled now, {done} of {len(session.worklist)} in all, {summary.left} left")
    if summary.revised:
        print(f"{summary.revised} decided otherwise after seeing what others said: their agreement is not independent")
    for pair in summary.pairs:
        kappa = "undefined" if pair.kappa is None else f"{pair.kappa:.2f}"
        share = f"{pair.agreed} of {pair.common} agree, kappa {kappa}" if pair.common else "nothing decided by both"
        left_open = f"; {pair.undecided} left open by one or both" if pair.undecided else ""
        # Names come from files of others: no control sequence of theirs reaches the terminal.
        name = "".join(c if c.isprintable() else "?" for c in pair.annotator)
        print(f"With {name}: {share}{left_open}")


def _people(paths: list[str], annotator: str) -> list[LabelRecord]:
    """The labels of other people in some files; what is left out is said."""
    labels: list[LabelRecord] = []
    for path in paths:
        records = list(read_labels(path))
        people = [record for record in records if record.source == SOURCE]
        others = [record for record in people if record.annotator != annotator]
        if not_people := len(records) - len(people):
            print(f"prill annotate: {path}: {not_people} labels not made by people are left out", file=sys.stderr)
        if own := len(people) - len(others):
            print(f"prill annotate: {path}: {own} labels of {annotator} are left out: only -o is continued", file=sys.stderr)
        labels += others
    return labels


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
