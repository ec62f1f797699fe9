"""Commands that judge trajectories."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands.base import JUDGE, MORE_OF_MODEL, Command
from prill.cli.layout import FlagLayout

_LIMITS = frozenset(
    f"max_{name}"
    for name in (
        "memory",
        "image_bytes",
        "images",
        "items",
        "jobs",
        "pixels",
        "request_pixels",
        "results",
        "values",
    )
) | {"body_timeout", "max_waiting"}
COMMANDS: Mapping[str, Command] = {
    "score": Command(
        "judge trajectories and write verdicts",
        "prill.runs.score:ScoreConfig",
        "prill.cli.judging:score",
        FlagLayout(("trajectories",), hidden=JUDGE),
        (
            "prill score t.jsonl -o v.jsonl --judge vlm --model gpt-4o --budget-usd 5",
            "prill score t.jsonl -o v.jsonl --judge modular --captioner text --model M --base-url "
            "http://localhost:8000/v1",
            "prill score score.toml --judge.frames 4",
        ),
        "Exit codes: 0 all scored, 3 some unscored, 2 nothing could be read or bad usage, "
        "4 endpoint down, 130 interrupted.",
        dry_run=True,
    ),
    "serve": Command(
        "serve a judge as an HTTP reward service for trainers",
        "prill.runs.serve:ServeConfig",
        "prill.cli.judging:serve",
        FlagLayout(hidden=JUDGE | MORE_OF_MODEL | _LIMITS),
        (
            "prill serve --judge vlm --model gpt-4o",
            "prill serve --judge modular --captioner text --model M --kind score --length-penalty "
            "0.01",
            "prill serve service.toml --host 0.0.0.0 --token-env PRILL_TOKEN",
        ),
        "Ctrl-C or TERM stops the service once all requests are answered, or after --grace "
        "seconds. A second one stops it at once.\n"
        "Exit codes: 0 stopped, 1 stopped before all requests were answered, 2 bad usage. "
        "docs/how-to/reward-service.md lists its routes,\n"
        "docs/explanation/limits.md the limits of requests (--max-body and others).",
    ),
    "caption": Command(
        "caption screenshots once, for judges or to train a captioner",
        "prill.runs.caption:CaptionConfig",
        "prill.cli.judging:caption",
        FlagLayout(("trajectories",), hidden=JUDGE),
        (
            "prill caption t.jsonl -o captions.jsonl --model Qwen/Qwen2.5-VL-7B-Instruct "
            "--base-url http://localhost:8000/v1",
            "prill caption t.jsonl -o data --for-training --model gpt-4o",
            "prill caption caption.toml --retry-unscored",
        ),
        "The same command resumes an interrupted run. Then: prill score … --judge modular "
        "--captioner captions.jsonl\n"
        "Exit codes: 0 all captioned, 3 some images have no caption or some lines are "
        "broken, 2 nothing could be read or\n"
        "bad usage, 130 interrupted.",
        dry_run=True,
    ),
    "judges": Command(
        "list judges, their options and prompts",
        "prill.runs.show:JudgesConfig",
        "prill.cli.judging:judges",
        FlagLayout(("judge",), {}, metavars={"judge": "NAME", "prompt_name": "P"}),
        (
            "prill judges",
            "prill judges vlm",
            "prill judges vlm --prompt > mine.md    # edit it, and: prill score … --judge vlm "
            "--prompt mine.md",
        ),
    ),
    "show": Command(
        "show one verdict with its model calls",
        "prill.runs.show:ShowConfig",
        "prill.cli.judging:show",
        FlagLayout(("id",), {}),
        (
            "prill show shop-17 --verdicts v.jsonl",
            "prill show shop-17 --verdicts out/vlm.jsonl out/steps.jsonl --trajectories t.jsonl | "
            "less",
            "prill show shop-17 --verdicts v.jsonl --transcripts calls --json",
        ),
    ),
    "batch write": Command(
        "write the requests of a judge to a folder, for a batch API or `vllm run-batch`",
        "prill.runs.batch:BatchWriteConfig",
        "prill.cli.judging:batch_write",
        FlagLayout(("trajectories",), hidden=JUDGE, metavars={"output": "DIR"}),
        (
            "prill batch write t.jsonl -o batch --judge vlm --model gpt-4o",
            "prill batch write t.jsonl -o batch --judge modular --captioner text --model gpt-4o "
            "--dry-run",
            "prill batch write batch.toml --limit 20",
        ),
        "Then: prill batch submit DIR --wait; prill batch collect DIR -o v.jsonl. Requests "
        "already in DIR are not written again.\n"
        "Exit codes: 0 done, 2 bad usage, 130 interrupted.",
        dry_run=True,
    ),
    "batch submit": Command(
        "submit the requests to the endpoint's batch API",
        "prill.runs.batch:BatchSubmitConfig",
        "prill.cli.judging:batch_submit",
        FlagLayout(("folder",)),
        (
            "prill batch submit batch --wait",
            "prill batch submit batch --dry-run",
            "prill batch submit batch --wait --every 600 --api anthropic",
        ),
        "Exit codes: 0 done, 2 bad usage, no batch API, or a problem with a file (the "
        "other files are submitted), 130 interrupted\n"
        "(submitted batches keep running).",
        dry_run=True,
    ),
    "batch collect": Command(
        "turn answers into verdicts, and write the next requests if the judge needs more",
        "prill.runs.batch:BatchCollectConfig",
        "prill.cli.judging:batch_collect",
        FlagLayout(("folder", "answers"), metavars={"answers": "OUTPUT"}),
        (
            "prill batch collect batch -o v.jsonl",
            "prill batch collect batch answers.jsonl -o v.jsonl",
            "prill batch collect batch -o v.jsonl --retry-unscored",
        ),
        "Exit codes: 0 all scored, 3 some unscored, 5 answers are missing (the next requests "
        "are written), 2 bad usage,\n"
        "130 interrupted.",
    ),
}
