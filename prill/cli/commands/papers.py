"""Commands of the papers' agents."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands.base import EPISODES, MORE_OF_MODEL, WHOLE, Command, names
from prill.cli.layout import FlagLayout

COMMANDS: Mapping[str, Command] = {
    "papers bench": Command(
        "run an agent on a benchmark, and print its results next to the published ones",
        "prill.papers.bench.run:BenchConfig",
        "prill.papers.bench.run:bench_or_ablation",
        FlagLayout(
            ("environment",),
            hidden=EPISODES | names("temperature observation_tokens"),
            flat=("environment", "lessons"),
            whole=WHOLE | {"lessons.model"},
        ),
        (
            "prill papers bench miniwob --policy react --model M --tasks 43 --trials 5 -o "
            "runs/bench",
            "prill papers bench webarena --shop --policy scripted -o runs/shop",
            "prill papers bench mind2web --recordings cross-task=test.jsonl --policy self-map "
            "--model M -o runs/m2w",
        ),
        "BENCHMARK is miniwob, webarena, airline or mind2web; BENCHMARK --help and "
        "--policy NAME --help list the options of each. Agents of\n"
        "papers use the paper's tasks, seeds and trials. Exit codes: 0 every episode has "
        "an outcome, 3 some have none, 2 bad usage, 130 interrupted.",
        plan="plan_bench",
        unit="task",
    ),
    "papers rank": Command(
        "rank the elements of recorded pages: a score per candidate, and how often the "
        "correct one is first",
        "prill.papers.mind2web.pages.ranking:RankConfig",
        "prill.papers.mind2web.pages.ranking:rank",
        FlagLayout(
            ("trajectories",),
        ),
        (
            "prill papers rank test.jsonl -o scores.json --ranker bm25",
            "prill papers rank test.jsonl -o scores.json --ranker ranker/  # by train ranker",
            "prill papers rank test.jsonl -o scores.json --ranker embedding:minilm --ranked "
            "ranked.jsonl",
        ),
        "The same command resumes an interrupted run. Exit codes: 0 all ranked, 3 "
        "unreadable turns were left out, 2 ranking is not possible, 130 interrupted.",
        unit="turn",
        stops=True,
    ),
    "papers exemplars": Command(
        "build an exemplar memory for the agent `synapse` from trajectories that a judge accepts",
        "prill.papers.synapse.runs:ExemplarsConfig",
        "prill.papers.synapse.runs:exemplars",
        FlagLayout(
            ("trajectories",),
        ),
        (
            "prill papers exemplars t.jsonl --verdicts v.jsonl -o memory",
            "prill papers exemplars t.jsonl --verdicts v.jsonl --calibration c.json -o memory "
            "--shipped",
            "prill papers exemplars t.jsonl --verdicts v.jsonl --threshold 0.8 -o memory --labels "
            "l.jsonl --json",
        ),
        "Pages must have been recorded as HTML (prill rollout miniwob --text html). Exit "
        "codes: 0 all read, 3 some broken lines were left out, 2 bad usage.",
        unit="traj",
    ),
    "papers conversations": Command(
        "build multi-turn conversations from single tasks of Mind2Web",
        "prill.papers.mind2web.multi_turn:ConversationsConfig",
        "prill.papers.mind2web.multi_turn:conversations",
        FlagLayout(("source",), hidden=MORE_OF_MODEL),
        (
            "prill papers conversations train_0.json -o conversations.json",
            "prill papers conversations mind2web/ -o conversations.json",
            "prill papers conversations train_0.json -o conversations.json --model gpt-4o "
            "--budget-usd 5",
        ),
        "Tasks of one site that share words become a conversation; long ones are divided "
        "into turns. The same command resumes an interrupted\n"
        "run. Exit codes: 0 all made, 3 some records are broken, a rule replaced the "
        "model, or calls failed (FILE is then not written yet),\n"
        "2 nothing could be read or bad usage, 130 interrupted.",
        unit="conversation",
        stops=True,
    ),
}
