"""Commands that use verdicts to improve agents."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands.base import EPISODES, JUDGE, WHOLE, Command, names
from prill.cli.layout import FlagLayout

# Training settings that apply to some model types only, or that few users need; they are hidden but
# work.
_TRAINING = names("beta1 beta2 max_grad_norm model_type workers keep_checkpoints log_every")
_OF_ROWS = _TRAINING | names("negatives draws balance")
_OF_JUDGES = (
    _TRAINING
    | JUDGE
    | names(
        "negatives draws engine engine_python options alpha dropout targets schedule warmup "
        "weight_decay overlong max_pixels gradient_checkpointing report_to trust_remote_code "
        "device gpus judge.calibration judge.guard judge.references"
    )
)
_OF_PAGES = _TRAINING | names(
    "rank alpha dropout targets max_pixels engine engine_python overlong balance"
)


def _training(
    kind: str,
    config: str,
    purpose: str,
    hidden: frozenset[str],
    *examples: str,
) -> Command:
    return Command(
        purpose,
        config,
        "prill.refine.training.train:train",
        FlagLayout(
            ("rows",),
            hidden=hidden,
            flat=("preset",),
        ),
        tuple(f"prill train {kind} {arguments}" for arguments in examples),
        "Settings that are not given come from the preset. Exit codes: 0 trained, 2 "
        "training is not possible, 130 stopped with a checkpoint.",
        plan="plan_train",
        quiet=True,
    )


COMMANDS: Mapping[str, Command] = {
    "reflexion": Command(
        "retry tasks that a judge says have failed, each time with a lesson from the "
        "previous attempt",
        "prill.refine.reflexion:ReflexionConfig",
        "prill.refine.reflexion:reflexion",
        FlagLayout(
            ("environment",),
            hidden=EPISODES
            | JUDGE
            | names("attempts hint lessons model observation_tokens sites", "policy."),
            flat=("environment", "retries", "lessons"),
            whole=WHOLE | {"lessons.model"},
        ),
        (
            "prill reflexion miniwob --tasks click-link --seeds 0-4 --model M --judge vlm "
            "--judge.model J -o runs/r",
            "prill reflexion webarena --shop --tasks all --model M --judge oracle --attempts 3 -o "
            "runs/shop",
            "prill reflexion retries.toml --keep-best",
        ),
        "ENVIRONMENT --help, --policy NAME --help and --judge NAME --help list the options "
        "of each.\n"
        "Exit codes: 0 every task has an answer, 3 some have none, 2 bad usage, 4 a "
        "required service is down, 130 interrupted.",
        plan="plan_reflexion",
        unit="task",
    ),
    "filter": Command(
        "select the trajectories or steps that a judge rates as good, and write training rows",
        "prill.refine.filter:FilterConfig",
        "prill.refine.filter:filter",
        FlagLayout(
            ("trajectories",),
            flat=("filter", "export"),
        ),
        (
            "prill filter t.jsonl --verdicts v.jsonl -o rows",
            "prill filter t.jsonl --verdicts v.jsonl -o rows --rows sft,kto --policy react "
            "--no-policy.reasoning",
            "prill filter filter.toml --threshold 0.7",
        ),
        "DIR gets one file per kind of rows, manifest.json, and report.md with what was "
        "kept or dropped and why.\n"
        "Exit codes: 0 all read, 3 some broken lines or images were left out, 2 no rows "
        "are left or bad usage.",
    ),
    "filtered-bc": Command(
        "run filtered behavioural cloning: play, judge, filter, train, evaluate on "
        "held-out tasks; in rounds",
        "prill.refine.filtered_bc.study:FilteredBCConfig",
        "prill.refine.filtered_bc.study:filtered_bc",
        FlagLayout(
            hidden=names("episodes attempts evaluation arms filter training"),
        ),
        (
            "prill filtered-bc examples/filtered_bc/miniwob.toml -o runs/bc --seeds 0,1,2",
            "prill filtered-bc study.toml -o runs/bc --dry-run --gpus 8xH200",
            "prill filtered-bc study.toml -o runs/bc --tables-only",
        ),
        "FILE.toml holds the study: policy, episodes, attempts, evaluation, arms, filter, "
        "training.\n"
        "docs/how-to/filtered-bc.md explains it.\n"
        "Exit codes: 0 done, 3 an arm had no training rows, 2 bad usage, 4 a required "
        "service is down, 130 interrupted.",
        plan="plan_filtered_bc",
        quiet=True,
    ),
    "train policy": _training(
        "policy",
        "prill.refine.training.train:TrainPolicyConfig",
        "train a policy on the rows of a filter, as a LoRA adapter or in full",
        _OF_ROWS,
        "rows.jsonl -o adapter --preset small-text",
        "rows.jsonl -o adapter --preset paper --model Qwen/Qwen3-VL-8B-Instruct --dry-run "
        "--gpus 8xH200",
        "policy.toml --learning-rate 2e-5",
    ),
    "train captioner": _training(
        "captioner",
        "prill.refine.training.train:TrainCaptionerConfig",
        "train a captioner on rows of captions",
        _OF_ROWS,
        "data/rows.jsonl -o captioner --method lora --dry-run",
        "data/rows.jsonl -o captioner --preset captioner-paper",
        "captioner.toml --held-out 0.1",
    ),
    "train judge": _training(
        "judge",
        "prill.refine.training.judge:TrainJudgeConfig",
        "train a judge on labelled trajectories, or on another judge's verdicts",
        _OF_JUDGES,
        "t.jsonl --labels labels.jsonl -o judge --preset small-judge --out-of-fold held-out.jsonl",
        "t.jsonl --teacher-verdicts v.jsonl --agreeing w.jsonl -o judge --judge vlm --dry-run",
        "judge.toml --held-out 0.3",
    ),
    "train ranker": _training(
        "ranker",
        "prill.papers.mind2web.training:TrainRankerConfig",
        "train a ranker of candidates on recorded pages",
        _OF_PAGES | {"draws"},
        "train.jsonl -o ranker --held-out 0.1",
        "train.jsonl -o ranker --preset small-ranker --model FOLDER",
        "ranker.toml --negatives 9",
    ),
    "train planner": _training(
        "planner",
        "prill.papers.mind2web.training:TrainPlannerConfig",
        "train a planner that answers a policy, on recorded pages",
        _OF_PAGES | {"negatives"},
        "train.jsonl -o planner --policy self-map",
        "train.jsonl -o planner --policy mindact --preset flan-t5-base",
        "planner.toml --draws 5",
    ),
}
