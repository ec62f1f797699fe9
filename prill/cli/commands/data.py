"""Commands about files."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands.base import Command
from prill.cli.layout import FlagLayout

COMMANDS: Mapping[str, Command] = {
    "convert": Command(
        "convert other tools' recordings into trajectories",
        "prill.datasets.data:ConvertConfig",
        "prill.datasets.data:convert",
        FlagLayout(
            ("format", "source"),
            hidden=frozenset({"format.images"}),
            flat=("format",),
        ),
        (
            "prill convert webarena results -o recorded",
            "prill convert mind2web data/test_domain --scores scores.pkl -o recorded",
            "prill convert mine.py:load logs -o recorded",
        ),
        "`prill convert FORMAT --help` lists the options of a format.\n"
        "Exit codes: 0 all converted, 3 some broken records were left out, 2 nothing could "
        "be read or bad usage.",
        unit="record",
    ),
    "check": Command(
        "summarise files, and report every broken line and image in them",
        "prill.datasets.data:CheckConfig",
        "prill.datasets.data:check",
        FlagLayout(("files",)),
        (
            "prill check t.jsonl labels.jsonl v.jsonl",
            "prill check runs --images --json",
            "prill check --schema trajectories",
        ),
        "Exit codes: 0 no problems, 3 some lines or images are broken, 2 nothing could be "
        "read or bad usage.",
        unit="line",
    ),
    "table": Command(
        "write verdicts as Markdown, CSV, JSON, or annotations for OpenInference, LangSmith or "
        "Inspect",
        "prill.datasets.table:TableConfig",
        "prill.datasets.table:write_table",
        FlagLayout(("verdicts",)),
        (
            "prill table v.jsonl -o verdicts.csv",
            "prill table v.jsonl --labels l.jsonl --format json",
            "prill table v.jsonl --format inspect --recording run.eval -o judged.eval",
        ),
        "Exit codes: 0 written, 3 some verdicts belong to nothing in the log, 2 bad usage.",
    ),
}
