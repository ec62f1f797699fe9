"""`prill batch`: `write` makes files of requests, `submit` hands them in, `collect` makes verdicts of the answers."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from prill.batches import BatchFolder, collect, fetch, submit, write
from prill.batches.folder import MANIFEST, Api, expect_free
from prill.batches.jobs import BatchProblems
from prill.batches.replay import PRICE_SHARE, expect_endpoint
from prill.cli.showing import figures, say_counts
from prill.commands.options import add_judge_options, expected, make_evaluator, open_folders, positive
from prill.commands.runs.plan import RunPlan, add_dry_run, plan_judging, show_plan
from prill.errors import EndpointError, UsageError
from prill.files.lines import is_stream
from prill.files.outputs import expect_place, is_stdout, words_beside
from prill.scoring import Tally
from prill.transcripts import transcript_folder
from prill.types import Usage

if TYPE_CHECKING:
    from tqdm import tqdm

_EXIT_SOME_UNSCORED, _EXIT_ANSWERS_MISSING, _EXIT_INTERRUPTED = 3, 5, 130


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options: one parser for each of the three steps."""
    parser.description = (
        "Judges by batches, at half the price of calls or on a machine of your own:\n"
        "  prill batch write t.jsonl -o batch --judge vlm --model gpt-4o\n"
        "  prill batch submit batch --wait\n"
        "  prill batch collect batch -o v.jsonl"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    steps = parser.add_subparsers(dest="step", metavar="STEP", required=True)
    _configure_write(steps.add_parser("write", help="write the requests of a judge into a folder"))
    _configure_submit(steps.add_parser("submit", help="hand the requests in at the endpoint's batch API"))
    _configure_collect(
        steps.add_parser("collect", help="make verdicts of the answers, and the next requests where a judge needs more")
    )


def run(args: argparse.Namespace) -> int:
    """Runs one step; 130 when interrupted: the same command goes on."""
    try:
        return {"write": _write, "submit": _submit, "collect": _collect}[args.step](args)
    except KeyboardInterrupt:
        _say("\nstopped; the same command goes on from here")
        return _EXIT_INTERRUPTED


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def _configure_write(parser: argparse.ArgumentParser) -> None:
    parser.usage = "prill batch write TRAJ [TRAJ ...] -o DIR --judge NAME [options]"
    parser.epilog = "What is written already is not written again. Exit codes: 0 done, 2 bad usage, 130 interrupted."
    parser.add_argument(
        "trajectories", nargs="+", metavar="TRAJ", help="trajectory file (.jsonl, .jsonl.gz), or folder of them"
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder for the requests, and later the answers")
    parser.add_argument("--limit", type=positive, metavar="N", help="look at the first N trajectories only")
    add_dry_run(parser)
    add_judge_options(parser)
    parser.set_defaults(concurrency=16)


def _configure_submit(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 done, 2 bad usage, no batch API, or a problem with a file (the others are handed in), "
        "130 interrupted (batches that were handed in go on)."
    )
    parser.add_argument("folder", metavar="DIR", help="folder of `prill batch write`")
    add_dry_run(parser)
    parser.add_argument("--wait", action="store_true", help="wait until the batches have ended, and fetch their answers")
    parser.add_argument(
        "--api",
        choices=get_args(Api),
        help="whose batch API the endpoint has (default: as before, else anthropic at Anthropic and openai elsewhere)",
    )
    parser.add_argument("--every", type=positive, default=60, metavar="S", help="seconds between two looks (default 60)")


def _configure_collect(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 all scored, 3 some unscored, 5 answers are missing (the next requests are written), 2 bad usage, "
        "130 interrupted."
    )
    parser.add_argument("folder", metavar="DIR", help="folder of `prill batch write`")
    parser.add_argument(
        "answers", nargs="*", metavar="OUTPUT", help="files of answers, of `vllm run-batch` say (those of `submit` are fetched)"
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="verdict file, where earlier verdicts are kept")
    parser.add_argument("--retry-unscored", action="store_true", help="write requests anew that failed")
    parser.add_argument("--no-transcripts", action="store_true", help="keep nothing of what models were asked and answered")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")


def _write(args: argparse.Namespace) -> int:
    open_folders(args)
    for path in args.trajectories:
        if is_stream(path):
            raise UsageError(f"{path}: a batch reads its trajectories again later; name a file")
    expect_place(args.output, "a batch")
    if args.budget_usd is not None:
        raise UsageError(
            "a batch cannot stop at a budget; `prill score` with the same options and --dry-run says what it would cost"
        )
    # Answers are found by the address, too: that of today is kept.
    args.base_url = args.base_url or os.environ.get("OPENAI_BASE_URL")
    judge = make_evaluator(args)
    expect_endpoint(judge)
    if args.dry_run:
        if not expect_free(Path(args.output)):
            with BatchFolder(args.output) as folder:
                folder.expect(judge.info)
        line = f"half the price of calls; requests would be written to {args.output}"
        plan = plan_judging(args, judge).run_plan(line)
        cost = None if plan.usage is None or plan.usage.usd is None else plan.usage.usd * PRICE_SHARE
        return show_plan(args, plan if plan.usage is None else replace(plan, usage=replace(plan.usage, usd=cost)))
    with _bar(args.trajectories, args.limit) as bar:

        def show(read: int) -> None:
            bar.update(read - bar.n)

        tally = asyncio.run(
            write(args.trajectories, judge, args.output, limit=args.limit, described=_described(args), progress=show)
        )
    with BatchFolder(args.output) as folder:
        files, requests = len(folder.manifest.files), sum(file.requests for file in folder.manifest.files)
    _say(f"{requests} requests in {files} files -> {args.output}")
    _say(f"{tally.pending} trajectories wait for answers, {tally.made} need none")
    for problem in tally.problems[:10]:
        _say(f"  {problem}")
    _say(f"next: prill batch submit {args.output}, or vllm run-batch -i FILE -o OUTPUT --model M; then prill batch collect")
    return 0


def _submit(args: argparse.Namespace) -> int:
    return asyncio.run(_carry(args))


async def _carry(args: argparse.Namespace) -> int:
    problems: dict[str, str] = {}
    with BatchFolder(args.folder) as folder:
        if args.dry_run:
            return show_plan(args, _submission(folder))
        try:
            if not await submit(folder, _say, api=args.api):
                _say("there is nothing to submit")
        except BatchProblems as error:
            problems = error.problems
        while args.wait:
            try:
                under_way = await fetch(folder, _say)
            except BatchProblems as error:  # the others are waited for all the same
                problems, under_way = problems | error.problems, error.under_way
            if not under_way:
                break
            await asyncio.sleep(args.every)
        here = {file.name for file in folder.manifest.files if file.fetched}
    if left := {name: problem for name, problem in problems.items() if name not in here}:
        raise BatchProblems(left)
    return 0


def _submission(folder: BatchFolder) -> RunPlan:
    """What would be handed in."""
    files = [file for file in folder.manifest.files if file.batch is None and not file.fetched]
    return RunPlan(
        work=tuple(f"hand in {file.name}: {file.requests} requests for {file.model}, at {file.base_url}" for file in files)
        or ("there is nothing to submit",),
        counts={"files": len(files), "requests": sum(file.requests for file in files)},
        usage=None if files else Usage(),
        unknown="`prill batch write --dry-run` estimates it",
    )


def _collect(args: argparse.Namespace) -> int:
    problem = None
    with BatchFolder(args.folder) as folder:
        before = len(folder.manifest.files)
        if any(file.batch and not file.fetched for file in folder.manifest.files):
            try:
                asyncio.run(fetch(folder, _say))
            except EndpointError as error:
                problem = error  # told at the end: verdicts are made of what has come
        manifest = folder.manifest
    if not manifest.judge:
        raise UsageError(f"{args.folder}: its judge was made in Python; collect it there (prill.batches.collect)")
    judge = make_evaluator(_as_described(Path(args.folder) / MANIFEST, manifest.judge, manifest.trajectories))
    on_disk = not is_stdout(args.output) and not is_stream(args.output)
    with _bar(manifest.trajectories, manifest.limit) as bar:

        def show(tally: Tally) -> None:
            bar.initial = tally.skipped
            bar.update(tally.read - bar.n)

        tally = asyncio.run(
            collect(
                args.folder,
                judge,
                args.output,
                answers=args.answers,
                retry_failed=args.retry_unscored,
                transcripts=transcript_folder(args.output) if on_disk and not args.no_transcripts else None,
                say=_say,
                progress=show,
            )
        )
    with BatchFolder(args.folder) as folder:
        new = folder.manifest.files[before:]
    _report(args, tally, [str(Path(args.folder) / file.name) for file in new])
    if problem is not None:
        raise problem
    return _EXIT_ANSWERS_MISSING if tally.pending else _EXIT_SOME_UNSCORED if tally.unscored else 0


def _report(args: argparse.Namespace, tally: Tally, new: list[str]) -> None:
    if args.json:
        summary = {
            **figures(tally),
            "pending": tally.pending,
            "requests": new,
            "output": args.output,
        }
        print(json.dumps(summary), file=words_beside(args.output))
    say_counts(tally, args.output)
    if tally.pending:
        _say(f"{tally.pending} trajectories wait for answers")
    if new:
        _say(f"the next requests: {', '.join(new)}; submit them or carry them out, and collect again")


def _described(args: argparse.Namespace) -> dict[str, Any]:
    """The options that say who judges, as `batch.json` keeps them."""
    left_out = {"command", "dry_run", "step", "version", "trajectories", "output", "limit", "of_judge"}
    return {name: value for name, value in vars(args).items() if name not in left_out and value not in (None, [])}


def _as_described(file: Path, judge: dict[str, Any], trajectories: tuple[str, ...]) -> argparse.Namespace:
    """The options again. Raises UsageError for those that this version does not have."""
    for name in ("evaluator", "model", "captioner", "base_url"):  # options of other types are checked as those of judge files
        if not isinstance(judge.get(name, ""), str):
            raise UsageError(f"{file}: judge.{name}: expected a text, got {json.dumps(judge[name])}; write a new batch")
    parser = argparse.ArgumentParser()
    add_judge_options(parser)
    args = parser.parse_args(["--judge", str(judge.get("evaluator"))])
    if unknown := judge.keys() - vars(args).keys() - {"concurrency"}:
        raise UsageError(f"the batch was written with options that are unknown here: {', '.join(sorted(unknown))}")
    vars(args).update(judge, trajectories=list(trajectories))
    return args


@contextlib.contextmanager
def _bar(trajectories: list[str] | tuple[str, ...], limit: int | None) -> Iterator[tqdm[NoReturn]]:
    from prill.cli.showing import progress_bar

    total = expected(trajectories, limit)
    with progress_bar(total=total, unit="traj", dynamic_ncols=True, file=sys.stderr, smoothing=0.1, delay=0.2) as bar:
        yield bar
