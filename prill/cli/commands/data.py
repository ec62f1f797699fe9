"""Commands about files."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands.base import Command
from prill.cli.layout import FlagLayout

COMMANDS: Mapping[str, Command] = {
    "convert": Command(
        "convert other tools' recordings into trajectories",
        "prill.runs.data:ConvertConfig",
        "prill.cli.data:convert",
        FlagLayout(
            ("format", "source"),
            hidden=frozenset({"format.images"}),
            metavars={"source": "IN", "output": "DIR"},
        ),
        (
            "prill convert webarena results -o recorded",
            "prill convert mind2web data/test_domain --scores scores.pkl -o recorded",
            "prill convert mine.py:load logs -o recorded",
        ),
        "`prill convert FORMAT --help` lists the options of a format.\n"
        "Exit codes: 0 all converted, 3 some broken records were left out, 2 nothing could "
        "be read or bad usage.",
    ),
    "check": Command(
        "summarise files, and report every broken line and image in them",
        "prill.runs.data:CheckConfig",
        "prill.cli.data:check",
        FlagLayout(("files",), {}),
        (
            "prill check t.jsonl labels.jsonl v.jsonl",
            "prill check runs --images --json",
            "prill check --schema trajectories",
        ),
        "Exit codes: 0 no problems, 3 some lines or images are broken, 2 nothing could be "
        "read or bad usage.",
    ),
    "merge": Command(
        "merge the verdict files of several shards",
        "prill.runs.data:MergeConfig",
        "prill.cli.data:merge",
        FlagLayout(("verdicts",)),
        (
            "prill merge part1.jsonl part2.jsonl -o v.jsonl    # of prill score … --shard 1/2 and "
            "2/2",
            "prill merge part*.jsonl -o v.jsonl",
            "prill merge part1.jsonl.gz part2.jsonl.gz -o - > v.jsonl",
        ),
        "Each id is written once. Files of different judges are refused. `prill score … -o "
        "v.jsonl` then judges what is missing.\n"
        "Exit codes: 0 all merged, 3 an incomplete last line was left out, 2 bad usage.",
    ),
    "table": Command(
        "print verdicts as a Markdown table, CSV or JSON",
        "prill.runs.data:TableConfig",
        "prill.cli.data:table",
        FlagLayout(("verdicts",)),
        (
            "prill table v.jsonl -o verdicts.csv",
            "prill table v.jsonl --labels l.jsonl --format json",
            "prill table asked.jsonl --answers -o answers.csv",
        ),
    ),
    "export": Command(
        "export verdicts as annotations in another tool's format",
        "prill.runs.export:ExportConfig",
        "prill.cli.data:export",
        FlagLayout(("verdicts",), metavars={"recording": "LOGS", "output": "OUT"}),
        (
            "prill export v.jsonl --to inspect --recording logs/run.eval -o judged.eval",
            "prill export v.jsonl --to openinference --recording spans.jsonl -o annotations.jsonl",
            "prill export v.jsonl --to csv -o verdicts.csv",
        ),
        "Exit codes: 0 all exported, 3 some were left out, 2 nothing could be written or "
        "bad usage.",
    ),
    "accept": Command(
        "accept changed files of a run folder by updating its checksums",
        "prill.runs.data:AcceptConfig",
        "prill.cli.data:accept",
        FlagLayout(("folder",), {}),
        ("prill accept runs/retries", "prill accept study", "prill accept runs/retries --json"),
        "Commands that read a run folder refuse files that differ from its checksums "
        "(checksums.jsonl), and name them.\n"
        "Restore the original files if you can. If you changed them on purpose, this "
        "command accepts them as they are;\n"
        "every statistic of the folder is then computed from them.",
    ),
}
