"""Commands that judge trajectories."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands.base import JUDGE, MORE_OF_MODEL, Command
from prill.cli.layout import FlagLayout

COMMANDS: Mapping[str, Command] = {
    "score": Command(
        "judge trajectories and write verdicts",
        "prill.evaluators.scoring.score:ScoreConfig",
        "prill.evaluators.scoring.score:score_to_file",
        FlagLayout(("trajectories",), hidden=JUDGE),
        (
            "prill score t.jsonl -o v.jsonl --judge vlm --model gpt-4o --budget-usd 5",
            "prill score t.jsonl -o v.jsonl --judge modular --judge.captioner text --model M "
            "--model.base-url http://localhost:8000/v1",
            "prill score score.toml --judge.frames 4",
        ),
        "Exit codes: 0 all scored, 3 some unscored, 2 nothing could be read or bad usage, "
        "4 endpoint down, 130 interrupted.",
        plan="plan_score",
        unit="traj",
        stops=True,
    ),
    "serve": Command(
        "serve a judge as an HTTP reward service for trainers",
        "prill.refine.rewards.service.serving:ServeConfig",
        "prill.cli.serving:serve",
        FlagLayout(hidden=JUDGE | MORE_OF_MODEL | {"max_images", "max_pixels"}, flat=("reward",)),
        (
            "prill serve --judge vlm --model gpt-4o",
            "prill serve --judge modular --judge.captioner text --model M --kind score "
            "--length-penalty 0.01",
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
        "prill.captioner.caption:CaptionConfig",
        "prill.captioner.caption:caption",
        FlagLayout(("trajectories",), hidden=JUDGE, flat=("captioner", "training")),
        (
            "prill caption t.jsonl -o captions.jsonl --model Qwen/Qwen2.5-VL-7B-Instruct "
            "--model.base-url http://localhost:8000/v1",
            "prill caption t.jsonl -o data --for-training --model gpt-4o",
            "prill caption caption.toml --retry-unscored",
        ),
        "The same command resumes an interrupted run. Then: prill score … --judge modular "
        "--judge.captioner captions.jsonl\n"
        "Exit codes: 0 all captioned, 3 some images have no caption or some lines are "
        "broken, 2 nothing could be read or\n"
        "bad usage, 130 interrupted.",
        plan="plan_caption",
        unit="picture",
        stops=True,
    ),
    "judges": Command(
        "list judges, their options and prompts",
        "prill.ui.show:JudgesConfig",
        "prill.ui.show:judges",
        FlagLayout(("judge",)),
        (
            "prill judges vlm",
            "prill judges vlm --prompt > mine.md    # edit it, and: prill score … --judge vlm "
            "--judge.prompt mine.md",
            "prill judges webjudge --write mine/webjudge.toml    # then: prill score … --judge "
            "mine/webjudge.toml",
        ),
    ),
    "show": Command(
        "show one verdict with its model calls",
        "prill.ui.show:ShowConfig",
        "prill.ui.show:show",
        FlagLayout(("id",)),
        (
            "prill show shop-17 --verdicts v.jsonl --labels labels.jsonl",
            "prill show shop-17 --verdicts out/vlm.jsonl out/steps.jsonl --trajectories t.jsonl | "
            "less",
            "prill show shop-17 --verdicts v.jsonl --transcripts calls --json",
        ),
    ),
    "batch": Command(
        "judge through a batch API, or by requests that you run with `vllm run-batch`",
        "prill.evaluators.scoring.batch:BatchConfig",
        "prill.evaluators.scoring.batch:batch",
        FlagLayout(
            ("folder", "answers"),
            hidden=JUDGE,
        ),
        (
            "prill batch out --trajectories t.jsonl --judge vlm --model gpt-4o",
            "prill batch out --trajectories t.jsonl --judge vlm --model gpt-4o --dry-run",
            "prill batch out answers.jsonl --api none",
        ),
        "Writes requests, submits them, and makes verdicts of the answers, until all is judged. "
        "`prill batch DIR` resumes.\n"
        "Exit codes: 0 all scored, 3 some unscored, 5 answers are missing, 2 bad usage or a "
        "problem with a batch (the others\n"
        "go on), 130 interrupted (batches go on).",
        plan="plan_batch",
    ),
}
