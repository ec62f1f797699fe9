"""Commands about files."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands.base import LABELS, Command
from prill.cli.words import Words

COMMANDS: Mapping[str, Command] = {
    "convert": Command(
        "data",
        "turn other tools' recordings into trajectories",
        "prill.runs.data:ConvertConfig",
        "prill.cli.data:convert",
        Words(
            ("format", "source"),
            hidden=frozenset({"format.images"}),
            metavars={
                "format": "FORMAT",
                "source": "IN",
                "output": "OUT",
                "scores": "FILE",
                "captions": "FILE",
            },
        ),
        (
            "prill convert webarena results -o recorded",
            "prill convert mind2web data/test_domain --scores scores.pkl -o recorded",
            "prill convert mine.py:load logs -o recorded",
        ),
        "`prill convert FORMAT --help` lists the options of a format.\n"
        "Exit codes: 0 all converted, 3 some records are broken and left out, 2 nothing could "
        "be read or bad usage.",
    ),
    "check": Command(
        "data",
        "what files hold, and every line and image in them that is broken",
        "prill.runs.data:CheckConfig",
        "prill.cli.data:check",
        Words(("files",), {}, metavars={"files": "FILE"}),
        (
            "prill check t.jsonl labels.jsonl v.jsonl",
            "prill check runs --images --json",
            "prill check --schema trajectories",
        ),
        "Exit codes: 0 all good, 3 something is broken, 2 nothing could be read or bad usage.",
    ),
    "merge": Command(
        "data",
        "verdict files of several shards as one",
        "prill.runs.data:MergeConfig",
        "prill.cli.data:merge",
        Words(("verdicts",), metavars={"verdicts": "VERDICTS", "output": "FILE"}),
        (
            "prill merge part1.jsonl part2.jsonl -o v.jsonl    # of prill score … --shard 1/2 and "
            "2/2",
            "prill merge part*.jsonl -o v.jsonl",
            "prill merge part1.jsonl.gz part2.jsonl.gz -o - > v.jsonl",
        ),
        "Each id once; files of different judges are refused. What is missing then, `prill "
        "score … -o v.jsonl` judges.\n"
        "Exit codes: 0 all merged, 3 a file ends in an incomplete line, which is left out, 2 "
        "bad usage.",
    ),
    "table": Command(
        "data",
        "verdicts as a Markdown table, a CSV file or JSON",
        "prill.runs.data:TableConfig",
        "prill.cli.data:table",
        Words(
            ("verdicts",),
            metavars={"verdicts": "VERDICTS", "labels": "L", "output": "FILE", **LABELS},
        ),
        (
            "prill table v.jsonl -o verdicts.csv",
            "prill table v.jsonl --labels l.jsonl --format json",
            "prill table asked.jsonl --answers -o answers.csv",
        ),
    ),
    "export": Command(
        "data",
        "verdicts as annotations in another tool's form",
        "prill.runs.export:ExportConfig",
        "prill.cli.data:export",
        Words(
            ("verdicts",), metavars={"verdicts": "VERDICTS", "recording": "LOGS", "output": "OUT"}
        ),
        (
            "prill export v.jsonl --to inspect --recording logs/run.eval -o judged.eval",
            "prill export v.jsonl --to openinference --recording spans.jsonl -o annotations.jsonl",
            "prill export v.jsonl --to csv -o verdicts.csv",
        ),
        "Exit codes: 0 all are in it, 3 some are left out, 2 nothing could be written or bad "
        "usage.",
    ),
    "accept": Command(
        "data",
        "take the files of a run folder as they are now, where they differ from its checksums",
        "prill.runs.data:AcceptConfig",
        "prill.cli.data:accept",
        Words(("folder",), {}, metavars={"folder": "DIR"}),
        ("prill accept runs/retries", "prill accept study", "prill accept runs/retries --json"),
        "A command that reads a run folder refuses files that are not as its run left them "
        "(checksums.jsonl), and names them.\n"
        "Put back what was there. Where that cannot be, or you changed them on purpose, this "
        "takes them as they are now:\n"
        "every figure of the folder then rests on them.",
    ),
}
