"""The table of commands: group, configuration, run and presentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prill.cli.words import Words


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        group: Where `prill --help` shows it.
        purpose: What it does, a phrase.
        config: `module:Class` of its configuration.
        show: `module:function` that takes the configuration and the switches, and gives the exit
            code.
        words: How its command line differs from the rule.
        examples: Commands on top of its help.
        epilog: What its help ends with.
        dry_run: Whether it can tell what it would do.
    """

    group: str
    purpose: str
    config: str
    show: str
    words: Words = field(default_factory=Words)
    examples: tuple[str, ...] = ()
    epilog: str = ""
    dry_run: bool = False


GROUPS: Mapping[str, str] = {
    "judge": "judge trajectories",
    "trust": "how far judges can be trusted",
    "improve": "make agents better by verdicts",
    "play": "record trajectories",
    "data": "files",
    "papers": "agents and tables of the papers",
}
# The order in which `prill --help` shows commands; others follow in that of COMMANDS.
_ORDER = (
    *("score", "serve", "batch", "caption", "judges", "show"),
    *("agree", "rate", "calibrate", "fit", "redteam", "annotate", "report"),
    *("reflexion", "filter", "train", "refine filtered-bc", "watch", "simulate-retries"),
    *("rollout", "devices", "check-sites"),
    *("convert", "check", "merge", "table", "export", "accept"),
    *("papers bench", "papers rank", "papers exemplars", "papers conversations"),
)
_JUDGE = frozenset(
    {
        "away",
        "form",
        "image_detail",
        "image_format",
        "patience",
        "probability",
        "reasoning_effort",
        "towards",
        "samples",
    }
)
_MORE_OF_MODEL = frozenset(
    f"model.{name}"
    for name in (
        "budget_usd",
        "concurrency",
        "prices",
        "repetition_penalty",
        "retries",
        "temperature",
        "top_k",
        "top_p",
        "total_timeout",
    )
)
_LIMITS = frozenset(
    f"max_{name}"
    for name in (
        "held",
        "image_bytes",
        "images",
        "items",
        "jobs",
        "pixels",
        "request_pixels",
        "results",
        "values",
    )
) | {"body_timeout", "door"}
_FILES = dict.fromkeys(
    ("canaries", "canary_labels", "observations", "reference", "student"), "FILE"
)
# Options about labels, as `prill.io.truth` has them.
_LABELS = {"source": "S", "truth": "RULE|NAME"}

# Of environments and models: docs/how-to/environments.md has them.
_EPISODES = frozenset(
    f"environment.{name}"
    for name in (
        *(
            "after_action",
            "answer_timeout",
            "before_screenshot",
            "boot_timeout",
            "downloads",
            "hars",
            "idle",
            "location",
        ),
        *(
            "login_timeout",
            "navigation_timeout",
            "prepare",
            "reset_timeout",
            "schemes",
            "settle_gap",
            "settle_timeout",
        ),
        *("timeout", "boxes", "limited", "tree", "seed", "adb_port", "simctl", "companion"),
    )
) | frozenset(
    f"model.{name}"
    for name in (
        *(
            "api_key_env",
            "concurrency",
            "gguf",
            "image_detail",
            "image_format",
            "max_pixels",
            "patience",
            "prices",
        ),
        *(
            "reasoning_effort",
            "repetition_penalty",
            "retries",
            "temperature",
            "timeout",
            "top_k",
            "top_p",
            "total_timeout",
        ),
        "budget_usd",
    )
)
# What another part has under the same name, and is meant more often.
_WHOLE = frozenset(
    {
        *(f"environment.{name}" for name in ("max_tokens", "timeout", "seed")),
        *("policy.swipe_up", "policy.device", "model.device", "policy.model.device"),
    }
)

_LABELLED = {
    **_LABELS,
    **{"trajectories": "TRAJ", "verdicts": "VERDICTS", "labels": "LABELS"},
    **dict.fromkeys(("output", "out_of_fold", "plot", "against", "disagreements"), "FILE"),
}

# Of WebArena: what a check of its sites has no use for.
_SHOWN = frozenset(
    {
        *(
            "viewport",
            "whole_page",
            "max_tokens",
            "pause",
            "downloads",
            "traces",
            "schemes",
            "cookies",
            "hars",
        ),
        *(
            f"oracle_model.{name.partition('.')[2]}"
            for name in _EPISODES
            if name.startswith("model.")
        ),
    }
)
# Settings of a training that have a meaning for some kinds only, or that few need; they work all
# the same.
_TRAINING = {
    "beta1",
    "beta2",
    "max_grad_norm",
    "model_type",
    "sample_tokens",
    "workers",
    "keep_checkpoints",
    "log_every",
}
_OF_ROWS = frozenset(_TRAINING | {"negatives", "draws"})
_OF_PAGES = frozenset(
    _TRAINING
    | {"rank", "alpha", "dropout", "targets", "max_pixels", "engine", "engine_python", "overlong"}
)


def _training(
    kind: str, config: str, purpose: str, hidden: frozenset[str], *examples: str
) -> Command:
    return Command(
        "improve",
        purpose,
        config,
        "prill.cli.improving:train",
        Words(
            ("rows",),
            hidden=hidden,
            # policies have such options, too
            renamed={"preset.model": "--model", "preset.seed": "--seed"},
            metavars={"output": "DIR", "preset": "NAME|FILE.toml", "gpus": "NxNAME"},
        ),
        tuple(f"prill train {kind} {words}" for words in examples),
        "Settings that are not given are the preset's. Exit codes: 0 trained, 2 it cannot be, 130 "
        "stopped with a checkpoint.",
        dry_run=True,
    )


COMMANDS: Mapping[str, Command] = {
    "score": Command(
        "judge",
        "judge trajectories and write verdicts",
        "prill.runs.score:ScoreConfig",
        "prill.cli.judging:score",
        Words(
            ("trajectories",), hidden=_JUDGE, metavars={"trajectories": "TRAJ", "output": "FILE"}
        ),
        (
            "prill score t.jsonl -o v.jsonl --judge vlm --model gpt-4o --budget-usd 5",
            "prill score t.jsonl -o v.jsonl --judge modular --captioner text --model M --base-url "
            "http://localhost:8000/v1",
            "prill score score.toml --judge.frames 4",
        ),
        "Exit codes: 0 all scored, 3 some unscored, 2 nothing could be read or bad usage, 4 "
        "endpoint gone, 130 interrupted.",
        dry_run=True,
    ),
    "refine filtered-bc": Command(
        "improve",
        "filtered behavioural cloning: play, judge, filter, train, play on what was held out; in "
        "rounds",
        "prill.runs.filtered_bc:FilteredBCConfig",
        "prill.cli.improving:filtered_bc",
        Words(
            hidden=frozenset({"episodes", "attempts", "evaluation", "arms", "filter", "training"}),
            metavars={"output": "DIR", "seeds": "0,1,2", "gpus": "NxNAME"},
        ),
        (
            "prill refine filtered-bc examples/filtered_bc/miniwob.toml -o runs/bc --seeds 0,1,2",
            "prill refine filtered-bc study.toml -o runs/bc --dry-run --gpus 8xH200",
            "prill refine filtered-bc study.toml -o runs/bc --tables-only",
        ),
        "FILE.toml holds the study: policy, episodes, attempts, evaluation, arms, filter, "
        "training.\n"
        "docs/how-to/filtered-bc.md explains it.\n"
        "Exit codes: 0 done, 3 an arm had nothing to learn from, 2 bad usage, 4 something is "
        "gone, 130 interrupted.",
        dry_run=True,
    ),
    "reflexion": Command(
        "improve",
        "try tasks again while a judge says failure, each time with a lesson from the attempt "
        "before",
        "prill.runs.reflexion:ReflexionConfig",
        "prill.cli.improving:reflexion",
        Words(
            ("environment",),
            hidden=_EPISODES
            | _JUDGE
            | {
                f"policy.{name}"
                for name in ("attempts", "hint", "lessons", "model", "observation_tokens", "sites")
            },
            metavars={"environment": "ENVIRONMENT", "output": "DIR", "baseline": "DIR"},
            whole=_WHOLE
            | {"judge", "second", "policy.attempts", "policy.lessons", "policy.observation_tokens"},
        ),
        (
            "prill reflexion miniwob --tasks click-link --seeds 0-4 --model M --judge vlm "
            "--judge.model J -o runs/r",
            "prill reflexion webarena --shop --tasks all --model M --judge oracle --attempts 3 -o "
            "runs/shop",
            "prill reflexion retries.toml --keep-best",
        ),
        "ENVIRONMENT --help, --policy NAME --help and --judge NAME --help list the options of "
        "each.\n"
        "Exit codes: 0 every task ended in an answer, 3 some without one, 2 bad usage, 4 "
        "something is gone, "
        "130 interrupted.",
        dry_run=True,
    ),
    "simulate-retries": Command(
        "improve",
        "what retries come to under a judge that errs: drawn at random, nothing is played",
        "prill.runs.simulation:SimulationConfig",
        "prill.cli.improving:simulation",
        Words(metavars={"output": "DIR", "recorded": "DIR", "verdicts": "FILE"}),
        (
            "prill simulate-retries -o out --false-positives 0.1 --false-negatives 0.3",
            "prill simulate-retries -o out --verdicts verdicts.jsonl --labels labels.jsonl "
            "--recorded runs/first",
            "prill simulate-retries -o out --calibration calibration.json --attempts 6",
        ),
    ),
    "serve": Command(
        "judge",
        "a judge as an HTTP reward service for trainers",
        "prill.runs.serve:ServeConfig",
        "prill.cli.judging:serve",
        Words(hidden=_JUDGE | _MORE_OF_MODEL | _LIMITS, metavars=_FILES),
        (
            "prill serve --judge vlm --model gpt-4o",
            "prill serve --judge modular --captioner text --model M --kind score --length-penalty "
            "0.01",
            "prill serve service.toml --host 0.0.0.0 --token-env PRILL_TOKEN",
        ),
        "Ctrl-C or TERM ends it when all requests are answered, or after --grace seconds; a "
        "second one at once. Exit codes: "
        "0 ended, 1 had to be forced,\n2 bad usage. docs/how-to/reward-service.md has its "
        "addresses, "
        "docs/explanation/limits.md the limits of requests (--max-body and others).",
    ),
    "watch": Command(
        "improve",
        "whether a reward goes wrong: canaries, drift, a second judge, reward hacking",
        "prill.runs.watch:WatchConfig",
        "prill.cli.improving:watch",
        Words(
            ("logs",),
            metavars={"logs": "LOG", "output": "PAGE", "student": "FILE", "reference": "FILE"},
        ),
        (
            "prill watch watch.jsonl -o watch.html",
            "prill watch verdicts.jsonl --student student-verdicts.jsonl",
            "prill watch watch.jsonl --window 100 --drift-alarm --json",
        ),
        "Exit codes: 0 no alarm, 1 an alarm stands at the end of a log, 3 no alarm but some lines "
        "could not be read, 2 nothing could be read or bad usage.",
    ),
    "papers bench": Command(
        "papers",
        "tables of what an agent comes to on a benchmark, beside the figures of the papers",
        "prill.papers.bench.run:BenchConfig",
        "prill.cli.papers:bench",
        Words(
            ("environment",),
            hidden=_EPISODES
            | {
                "temperature",
                "compare_text",
                "observation_tokens",
                "reflection_tokens",
                "lesson_tries",
            },
            metavars={"environment": "BENCHMARK", "output": "DIR", "beside": "NAME,FILE"},
            whole=_WHOLE | {"policy.lessons", "policy.observation_tokens"},
        ),
        (
            "prill papers bench miniwob --policy react --model M --tasks 43 --trials 5 -o "
            "runs/bench",
            "prill papers bench webarena --shop --policy scripted -o runs/shop",
            "prill papers bench mind2web --recordings cross-task=test.jsonl --policy self-map "
            "--model M -o runs/m2w",
        ),
        "BENCHMARK is miniwob, webarena, airline or mind2web; BENCHMARK --help and --policy NAME "
        "--help list the options of "
        "each. An agent of a\npaper has its tasks, seeds and trials. Exit codes: 0 every episode "
        "has an outcome, 3 some have "
        "none, 2 bad usage, 130 interrupted.",
        dry_run=True,
    ),
    "papers exemplars": Command(
        "papers",
        "a memory of exemplars for the agent `synapse`, from trajectories that a judge accepts",
        "prill.papers.synapse.runs:ExemplarsConfig",
        "prill.cli.papers:exemplars",
        Words(
            ("trajectories",),
            metavars={
                "trajectories": "TRAJ",
                "verdicts": "V",
                "output": "DIR",
                "truth": "RULE|NAME",
            },
        ),
        (
            "prill papers exemplars t.jsonl --verdicts v.jsonl -o memory",
            "prill papers exemplars t.jsonl --verdicts v.jsonl --calibration c.json -o memory "
            "--shipped",
            "prill papers exemplars t.jsonl --verdicts v.jsonl --threshold 0.8 -o memory --labels "
            "l.jsonl --json",
        ),
        "Pages must have been recorded as HTML (prill rollout miniwob --text html). Exit codes: 0 "
        "all read, 3 without some broken lines, 2 bad usage.",
    ),
    "papers rank": Command(
        "papers",
        "which elements of recorded pages are meant: a score for each candidate, and how often "
        "the right one comes first",
        "prill.papers.mind2web.runs:RankConfig",
        "prill.cli.papers:rank",
        Words(
            ("trajectories",),
            metavars={
                "trajectories": "GOLD",
                "output": "FILE",
                "ranked": "OUT",
                "ranker": "NAME|DIR",
            },
        ),
        (
            "prill papers rank test.jsonl -o scores.json --ranker bm25",
            "prill papers rank test.jsonl -o scores.json --ranker ranker/      (trained by prill "
            "train ranker)",
            "prill papers rank test.jsonl -o scores.json --ranker embedding:minilm --ranked "
            "ranked.jsonl",
        ),
        "Exit codes: 0 all ranked, 3 without turns that cannot be read, 2 it cannot be, 130 "
        "interrupted: the same command goes on.",
    ),
    "papers conversations": Command(
        "papers",
        "conversations of several turns, from single tasks of Mind2Web",
        "prill.papers.mind2web.runs:ConversationsConfig",
        "prill.cli.papers:conversations",
        Words(("source",), hidden=_MORE_OF_MODEL, metavars={"source": "IN", "output": "FILE"}),
        (
            "prill papers conversations train_0.json -o conversations.json",
            "prill papers conversations mind2web/ -o conversations.json --most-tasks 4",
            "prill papers conversations train_0.json -o conversations.json --model gpt-4o "
            "--budget-usd 5",
        ),
        "Tasks of one site that share words become a conversation; long ones are divided into "
        "turns. The same command goes on "
        "where a run\nbroke off. Exit codes: 0 all made, 3 some records are broken, a rule stood "
        "in for the model, or calls "
        "failed (FILE is then not\nwritten yet), 2 nothing could be read or bad usage, 130 "
        "interrupted.",
    ),
    "rollout": Command(
        "play",
        "record trajectories: a policy in an environment",
        "prill.runs.rollout:RolloutConfig",
        "prill.cli.playing:rollout",
        Words(
            ("environment",),
            hidden=_EPISODES | {"first_play"},
            metavars={
                "environment": "ENVIRONMENT",
                "output": "DIR",
                "plan": "TOML",
                "behaviour": "A,B",
            },
            whole=_WHOLE,
            renamed={"policy.trajectories": "--replay"},
        ),
        (
            "prill rollout miniwob --tasks click-link,enter-text --seeds 0-4 -o runs/a",
            "prill rollout webarena --shop --tasks all --policy react --model M --budget-usd 2 -o "
            "runs/b",
            "prill rollout mine.py:Shop --goal 'Find the price' --policy mine.py:Agent -o runs/c",
        ),
        "ENVIRONMENT --help and --policy NAME --help list the options of an environment and of a "
        "policy: "
        + "miniwob, webarena, airline, web, browsergym, mind2web, android, ios.\n"
        + "Exit codes: 0 all ended as they should, 3 some broke off or have no label, 2 bad "
        "usage, 4 something is gone, " + "130 interrupted.",
        dry_run=True,
    ),
    "check-sites": Command(
        "play",
        "whether WebArena's own sites are ready: addresses, logins, the reset and an oracle",
        "prill.emulators.webarena.config:WebArenaConfig",
        "prill.cli.playing:check_sites",
        Words(
            short={},
            hidden=_SHOWN,
            metavars={"configs": "FILE", "reset": "COMMAND|URL"},
        ),
        (
            "prill check-sites --reset ./reset.sh",
            "prill check-sites --shop",
            "prill check-sites --tasks 0-99 --oracle verified --json",
        ),
        "Exit codes: 0 everything is there, 3 something is missing, 2 bad usage.",
    ),
    "devices": Command(
        "play",
        "which browsers, phones and simulators can be used here, and how to get the others",
        "prill.runs.devices:DevicesConfig",
        "prill.cli.playing:devices",
        Words(("platforms",), metavars={"platforms": "PLATFORM", "appium_url": "URL"}),
        (
            "prill devices",
            "prill devices android --appium-url http://10.0.0.2:4723",
            "prill devices ios --json",
        ),
    ),
    "show": Command(
        "judge",
        "one verdict with what models were asked and answered",
        "prill.runs.show:ShowConfig",
        "prill.cli.judging:show",
        Words(("id",), {}, metavars={"id": "ID", "verdicts": "V", "trajectories": "T"}),
        (
            "prill show shop-17 --verdicts v.jsonl",
            "prill show shop-17 --verdicts out/vlm.jsonl out/steps.jsonl --trajectories t.jsonl | "
            "less",
            "prill show shop-17 --verdicts v.jsonl --transcripts calls --json",
        ),
    ),
    "judges": Command(
        "judge",
        "the judges there are, their options and prompts",
        "prill.runs.show:JudgesConfig",
        "prill.cli.judging:judges",
        Words(("judge",), {}, metavars={"judge": "NAME", "prompt_name": "P"}),
        (
            "prill judges",
            "prill judges vlm",
            "prill judges vlm --prompt > mine.md    # edit it, and: prill score … --judge vlm "
            "--prompt mine.md",
        ),
    ),
    "report": Command(
        "trust",
        "one HTML page with screenshots, verdicts and labels",
        "prill.runs.report:ReportConfig",
        "prill.cli.trusting:report",
        Words(
            ("trajectories",),
            metavars={
                "output": "PAGE",
                "verdicts": "V",
                "labels": "L",
                "threshold": "T",
                "calibration": "C",
                "by": "KEY",
                "title": "TEXT",
                **_LABELS,
            },
        ),
        (
            "prill report t.jsonl -o report.html --verdicts v.jsonl --labels l.jsonl",
            "prill report t.jsonl -o report.html --verdicts vlm.jsonl steps.jsonl --embed",
            "prill report runs/retries -o report.html",
        ),
        "Exit codes: 0 all shown, 3 some lines or images could not be read, 2 nothing could be "
        "read or bad usage.",
    ),
    "annotate": Command(
        "trust",
        "label trajectories by hand, in a browser",
        "prill.runs.annotate:AnnotateConfig",
        "prill.cli.trusting:annotate",
        Words(
            ("trajectories",),
            metavars={
                "annotator": "NAME",
                "captions": "FILE",
                "earlier": "LABELS",
                "order": "file|random",
                "output": "LABELS",
                "verdicts": "V",
            },
        ),
        (
            "prill annotate t.jsonl -o labels.jsonl --annotator ada",
            "prill annotate t.jsonl -o labels.jsonl --annotator ada --order random --limit 100 "
            "--blind",
            "prill annotate --captions captions.jsonl --annotator ada",
        ),
        "The page asks for success, failure, not executable or unsure, for a label of each step "
        "if wanted, and for a note. "
        "Every decision is on disk before the next trajectory comes up; the same command resumes.\n"
        "Exit codes: 0 ended, 3 ended and some lines are broken and left out, 2 nothing could be "
        "read or bad usage.",
    ),
    "table": Command(
        "data",
        "verdicts as a Markdown table, a CSV file or JSON",
        "prill.runs.data:TableConfig",
        "prill.cli.data:table",
        Words(
            ("verdicts",),
            metavars={"verdicts": "VERDICTS", "labels": "L", "output": "FILE", **_LABELS},
        ),
        (
            "prill table v.jsonl",
            "prill table v.jsonl -o verdicts.csv",
            "prill table v.jsonl --labels l.jsonl --format json",
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
        "Exit codes: 0 all are in it, 3 some are left out, 2 nothing "
        "could be written or bad usage.",
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
        "Each id once; files of different judges are refused. What is missing then, `prill score "
        "… -o v.jsonl` judges.\n"
        "Exit codes: 0 all merged, 3 a file ends in an incomplete line, which is left out, 2 bad "
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
        "Exit codes: 0 all converted, 3 some records are broken and left out, 2 nothing could be "
        "read or bad usage.",
    ),
    "agree": Command(
        "trust",
        "compare verdicts with labels",
        "prill.runs.agree:AgreeConfig",
        "prill.cli.trusting:agree",
        Words(("verdicts", "labels"), metavars={**_LABELLED, "corrections": "NAME", "by": "KEY,…"}),
        (
            "prill agree v.jsonl labels.jsonl --trajectories t.jsonl --by site,agent",
            "prill agree v.jsonl labels.jsonl --against other.jsonl --disagreements differ.jsonl",
            "prill agree predicted.jsonl recorded.jsonl --metric aitw",
        ),
    ),
    "rate": Command(
        "trust",
        "success rates, corrected for the judge's errors by labels on some runs",
        "prill.runs.rate:RateConfig",
        "prill.cli.trusting:rate",
        Words(("verdicts", "labels"), metavars={**_LABELLED, "by": "KEY,…"}),
        (
            "prill rate v.jsonl labels.jsonl --trajectories t.jsonl --by agent",
            "prill rate v.jsonl labels.jsonl --trajectories t.jsonl --width 0.1",
            "prill rate v.jsonl labels.jsonl --unscored left-out --json",
        ),
    ),
    "fit": Command(
        "trust",
        "fit a judge to your own labelled trajectories, without a language model",
        "prill.runs.fitting:FitConfig",
        "prill.cli.trusting:fit",
        Words(("trajectories", "labels"), metavars=_LABELLED),
        (
            "prill fit t.jsonl labels.jsonl -o student.json --out-of-fold held-out.jsonl",
            "prill fit t.jsonl labels.jsonl -o student.json --evidence-only --source human",
            "prill fit fit.toml --harden --families stop-early,error-end",
        ),
        "Exit codes: 0 fitted, 3 fitted without some broken lines, 2 too few labelled runs or bad "
        "usage.",
    ),
    "calibrate": Command(
        "trust",
        "make a judge's scores probabilities, and choose a threshold",
        "prill.runs.fitting:CalibrateConfig",
        "prill.cli.trusting:calibrate",
        Words(("verdicts", "labels"), metavars=_LABELLED),
        (
            "prill calibrate v.jsonl labels.jsonl -o calibration.json --trajectories t.jsonl "
            "--plot reliability.svg",
            "prill calibrate v.jsonl labels.jsonl -o calibration.json --target-precision 0.9",
            "prill calibrate calibrate.toml --cost-fp 1 --cost-fn 4",
        ),
        "Use labels that the judge has not been fitted to: on its own it is surer, and better, "
        "than on others. For a fitted\n"
        "judge that means the verdicts of `prill fit --out-of-fold`. `prill score --calibration "
        "FILE` puts the file to use.",
    ),
    "redteam": Command(
        "trust",
        "attack judges with false claims and injected text",
        "prill.runs.redteam:RedteamConfig",
        "prill.cli.trusting:redteam",
        Words(
            ("trajectories", "labels"), hidden=_JUDGE, metavars={**_LABELLED, "output": "FOLDER"}
        ),
        (
            "prill redteam t.jsonl labels.jsonl -o red --judge vlm --model gpt-4o --attacks "
            "claim-answer,pad-after --limit 50",
            "prill redteam t.jsonl labels.jsonl -o red --judge student --judge.model student.json "
            "--max-shift 2",
            "prill redteam redteam.toml --dry-run",
        ),
        "Never attack a fitted judge on what it was fitted on: that flatters it.\n"
        "docs/how-to/red-team.md explains attacks.\n"
        "Exit codes: 0 done, 1 an attack adds more than --max-shift, 3 done and some verdicts are "
        "unscored, 2 nothing could\n"
        "be read or bad usage, 4 endpoint gone, 130 interrupted.",
        dry_run=True,
    ),
    "batch write": Command(
        "judge",
        "write the requests of a judge into a folder, for a batch API or `vllm run-batch`",
        "prill.runs.batch:BatchWriteConfig",
        "prill.cli.judging:batch_write",
        Words(("trajectories",), hidden=_JUDGE, metavars={"output": "DIR"}),
        (
            "prill batch write t.jsonl -o batch --judge vlm --model gpt-4o",
            "prill batch write t.jsonl -o batch --judge modular --captioner text --model gpt-4o "
            "--dry-run",
            "prill batch write batch.toml --limit 20",
        ),
        "Then: prill batch submit DIR --wait; prill batch collect DIR -o v.jsonl. What is written "
        "is not written again.\n"
        "Exit codes: 0 done, 2 bad usage, 130 interrupted.",
        dry_run=True,
    ),
    "batch submit": Command(
        "judge",
        "hand the requests in at the endpoint's batch API",
        "prill.runs.batch:BatchSubmitConfig",
        "prill.cli.judging:batch_submit",
        Words(("folder",), metavars={"folder": "DIR"}),
        (
            "prill batch submit batch --wait",
            "prill batch submit batch --dry-run",
            "prill batch submit batch --wait --every 600 --api anthropic",
        ),
        "Exit codes: 0 done, 2 bad usage, no batch API, or a problem with a file (the others are "
        "handed in), 130 interrupted\n"
        "(batches that were handed in go on).",
        dry_run=True,
    ),
    "batch collect": Command(
        "judge",
        "make verdicts of the answers, and the next requests where a judge needs more",
        "prill.runs.batch:BatchCollectConfig",
        "prill.cli.judging:batch_collect",
        Words(
            ("folder", "answers"), metavars={"folder": "DIR", "answers": "OUTPUT", "output": "FILE"}
        ),
        (
            "prill batch collect batch -o v.jsonl",
            "prill batch collect batch answers.jsonl -o v.jsonl",
            "prill batch collect batch -o v.jsonl --retry-unscored",
        ),
        "Exit codes: 0 all scored, 3 some unscored, 5 answers are missing (the next requests are "
        "written), 2 bad usage,\n"
        "130 interrupted.",
    ),
    "caption": Command(
        "judge",
        "put screenshots into words, once each, for judges or to train a captioner",
        "prill.runs.caption:CaptionConfig",
        "prill.cli.judging:caption",
        Words(("trajectories",), hidden=_JUDGE, metavars={"output": "FILE"}),
        (
            "prill caption t.jsonl -o captions.jsonl --model Qwen/Qwen2.5-VL-7B-Instruct "
            "--base-url http://localhost:8000/v1",
            "prill caption t.jsonl -o data --for-training --model gpt-4o",
            "prill caption caption.toml --retry-unscored",
        ),
        "The same command goes on where a run broke off. Then: prill score … --judge modular "
        "--captioner captions.jsonl\n"
        "Exit codes: 0 all captioned, 3 some pictures have no caption or some lines are broken, 2 "
        "nothing could be read or\n"
        "bad usage, 130 interrupted.",
        dry_run=True,
    ),
    "filter": Command(
        "improve",
        "from verdicts to training rows: keep the steps that a judge found good",
        "prill.runs.filter:FilterConfig",
        "prill.cli.improving:filter",
        Words(
            ("trajectories",),
            renamed={"filter.seed": "--seed"},  # policies have seeds, too
            metavars={
                "output": "DIR",
                "verdicts": "V",
                "labels": "L",
                "truth": "RULE|NAME",
                "rows": "KINDS",
            },
        ),
        (
            "prill filter t.jsonl --verdicts v.jsonl -o rows",
            "prill filter t.jsonl --verdicts v.jsonl -o rows --rows sft,kto --policy react "
            "--no-policy.reasoning",
            "prill filter filter.toml --threshold 0.7",
        ),
        "DIR gets a file for each kind of rows, manifest.json, and report.html: what was kept and "
        "lost, and why.\n"
        "Exit codes: 0 all read, 3 rows without some broken lines or images, 2 nothing is left or "
        "bad usage.",
    ),
    "train policy": _training(
        "policy",
        "prill.runs.train:TrainPolicyConfig",
        "a policy from the rows of a filter: a LoRA adapter, or all weights",
        _OF_ROWS,
        "rows.jsonl -o adapter --preset small-text",
        "rows.jsonl -o adapter --preset paper --model Qwen/Qwen3-VL-8B-Instruct --dry-run --gpus "
        "8xH200",
        "policy.toml --learning-rate 2e-5",
    ),
    "train captioner": _training(
        "captioner",
        "prill.runs.train:TrainCaptionerConfig",
        "a captioner from rows of captions",
        _OF_ROWS,
        "data/rows.jsonl -o captioner --method lora --dry-run",
        "data/rows.jsonl -o captioner --preset captioner-paper",
        "captioner.toml --held-out 0.1",
    ),
    "train ranker": _training(
        "ranker",
        "prill.papers.mind2web.training.config:TrainRankerConfig",
        "a ranker of candidates from recorded pages",
        _OF_PAGES | {"draws"},
        "train.jsonl -o ranker --held-out 0.1",
        "train.jsonl -o ranker --preset small-ranker --model FOLDER",
        "ranker.toml --negatives 9",
    ),
    "train planner": _training(
        "planner",
        "prill.papers.mind2web.training.config:TrainPlannerConfig",
        "a planner that answers a policy, from recorded pages",
        _OF_PAGES | {"negatives"},
        "train.jsonl -o planner --policy self-map",
        "train.jsonl -o planner --policy mindact --preset flan-t5-base",
        "planner.toml --draws 5",
    ),
}


def overview() -> str:
    """The help of `prill` itself: every command in a line, by groups."""
    found = {name: (command.group, command.purpose) for name, command in COMMANDS.items()}
    place = {name: index for index, name in enumerate(_ORDER)}
    lines = [
        "usage: prill COMMAND [options]",
        "",
        (
            "Evaluates trajectories of digital agents, and uses the "
            "verdicts to make the agents better."
        ),
    ]
    width = max(map(len, found))
    for group, title in GROUPS.items():
        names = sorted(
            (name for name in found if found[name][0] == group),
            key=lambda name: place.get(name, len(place)),
        )
        lines += (
            ["", f"{group}: {title}", *(f"  {name:<{width}}  {found[name][1]}" for name in names)]
            if names
            else []
        )
    lines += [
        "",
        (
            "prill COMMAND --help tells more; prill --version prints the version, prill completion "
            "SHELL what a shell loads."
        ),
    ]
    return "\n".join(lines)
