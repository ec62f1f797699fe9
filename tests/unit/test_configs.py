"""A run is a value: flags, a TOML file and Python make the same configuration of each command."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import prill
import prill.papers
import prill.papers.bench
from prill.cli.commands import COMMANDS
from prill.cli.derive import derive
from prill.cli.layout import FlagLayout, Switches
from prill.config.registry import load_object
from prill.config.values import Config, config_options
from prill.errors import UsageError
from prill.lazy import homes
from prill.refine import StudyArm
from tests.support.paths import ROOT


@dataclass(frozen=True)
class Ways:
    """One configuration, three ways."""

    flags: str
    toml: str
    python: Callable[[], Config]
    file: str = ""  # what stands before the flags, where a part of it has none


WAYS: dict[str, list[Ways]] = {
    "score": [
        Ways(
            "a.jsonl b.jsonl -o v.jsonl --judge vlm --judge.frames 2 --model gpt-4o --base-url "
            "http://x --no-resume --limit 3",
            """
            trajectories = ["a.jsonl", "b.jsonl"]
            output = "v.jsonl"
            resume = false
            limit = 3
            judge = {name = "vlm", frames = 2}
            model = {name = "gpt-4o", base-url = "http://x"}
            """,
            lambda: prill.ScoreConfig(
                trajectories=[Path("a.jsonl"), "b.jsonl"],
                output=Path("v.jsonl"),
                judge=prill.JudgeConfig("vlm", frames=2),
                model={"name": "gpt-4o", "base_url": "http://x"},
                resume=False,
                limit=3,
            ),
        ),
        Ways(
            "a.jsonl -o v.jsonl --judge modular --captioner vlm --captioner.model m "
            "--no-transcripts --processes 2 --format mind2web --format.scores s.pkl --goal tea",
            """
            trajectories = ["a.jsonl"]
            output = "v.jsonl"
            goal = "tea"
            format = {name = "mind2web", scores = "s.pkl"}
            transcripts = false
            processes = 2
            [judge]
            name = "modular"
            [judge.captioner]
            name = "vlm"
            model = "m"
            """,
            lambda: prill.ScoreConfig(
                trajectories=["a.jsonl"],
                output="v.jsonl",
                judge={"name": "modular", "captioner": {"name": "vlm", "model": "m"}},
                transcripts=False,
                processes=2,
                format=prill.FormatConfig("mind2web", scores="s.pkl"),
                goal="tea",
            ),
        ),
    ],
    "serve": [
        Ways(
            "--judge modular --judge.captioner text --model m --kind score --length-penalty 0.5 "
            "--port 0 --window 50",
            """
            port = 0
            model = "m"
            [reward]
            kind = "score"
            length-penalty = 0.5
            judge = "modular"
            captioner = "text"
            [reward.watch]
            window = 50
            """,
            lambda: prill.ServeConfig(
                port=0,
                model="m",
                reward=prill.RewardConfig(
                    judge=prill.JudgeConfig("modular", captioner="text"),
                    kind="score",
                    length_penalty=0.5,
                    watch={"window": 50},
                ),
            ),
        ),
        Ways(
            "--judge always-fail --reward.on-unscored value --value=-1 --concurrency 4 "
            "--observations w.jsonl --drift-alarm",
            """
            concurrency = 4
            [reward]
            judge = {name = "always-fail"}
            on_unscored = "value"
            value = -1
            watch = {observations = "w.jsonl", drift_alarm = true}
            """,
            lambda: prill.ServeConfig(
                concurrency=4,
                reward={
                    "judge": "always-fail",
                    "on_unscored": "value",
                    "value": -1,
                    "watch": {"observations": Path("w.jsonl"), "drift_alarm": True},
                },
            ),
        ),
    ],
    "watch": [
        Ways(
            "a.jsonl b.jsonl -o w.html --student s.jsonl t.jsonl --window 50 --chance 0.01 "
            "--drift-alarm",
            """
            logs = ["a.jsonl", "b.jsonl"]
            output = "w.html"
            student = ["s.jsonl", "t.jsonl"]
            window = 50
            chance = 0.01
            drift-alarm = true
            """,
            lambda: prill.WatchConfig(
                logs=["a.jsonl", Path("b.jsonl")],
                output="w.html",
                student=["s.jsonl", "t.jsonl"],
                window=50,
                chance=0.01,
                drift_alarm=True,
            ),
        ),
    ],
    "papers bench": [
        Ways(
            "miniwob --policy react --model m --tasks 43 --seeds 0-4 --trials 2 --lessons.model j "
            "--baselines step,own.toml -o b",
            """
            environment = {name = "miniwob", tasks = 43}
            policy = "react"
            model = "m"
            seeds = "0-4"
            trials = 2
            lessons = {model = "j"}
            baselines = ["step", "own.toml"]
            output = "b"
            """,
            lambda: prill.papers.bench.BenchConfig(
                environment=prill.MiniWobConfig(tasks="43"),
                policy="react",
                model="m",
                seeds="0-4",
                trials=2,
                lessons={"model": "j"},
                baselines=["step", Path("own.toml")],
                output=Path("b"),
            ),
        ),
        Ways(
            "mind2web --recordings cross-task=t.jsonl --policy self-map --baselines none -o runs/m "
            "--retry-broken",
            """
            policy = "self-map"
            baselines = "none"
            output = "runs/m"
            retry_broken = true
            [environment]
            name = "mind2web"
            recordings = "cross-task=t.jsonl"
            """,
            lambda: prill.papers.bench.BenchConfig(
                environment={"name": "mind2web", "recordings": ["cross-task=t.jsonl"]},
                policy="self-map",
                baselines="none",
                output="runs/m",
                retry_broken=True,
            ),
        ),
    ],
    "papers exemplars": [
        Ways(
            "a.jsonl b.jsonl --verdicts v.jsonl -o memory --threshold 0.5 --per-task 2 --shipped "
            "--labels l.jsonl --truth anna",
            """
            trajectories = ["a.jsonl", "b.jsonl"]
            verdicts = "v.jsonl"
            output = "memory"
            threshold = 0.5
            per-task = 2
            shipped = true
            labels = "l.jsonl"
            truth = "anna"
            """,
            lambda: prill.papers.ExemplarsConfig(
                trajectories=["a.jsonl", "b.jsonl"],
                verdicts="v.jsonl",
                output=Path("memory"),
                threshold=0.5,
                per_task=2,
                shipped=True,
                labels="l.jsonl",
                truth="anna",
            ),
        ),
    ],
    "papers rank": [
        Ways(
            "g.jsonl -o s.json --ranker embedding:minilm --ranked r.jsonl --base-url http://x "
            "--batch 4 --no-resume",
            """
            trajectories = "g.jsonl"
            output = "s.json"
            ranker = "embedding:minilm"
            ranked = "r.jsonl"
            base_url = "http://x"
            batch = 4
            resume = false
            """,
            lambda: prill.papers.RankConfig(
                trajectories=Path("g.jsonl"),
                output="s.json",
                ranker="embedding:minilm",
                ranked="r.jsonl",
                base_url="http://x",
                batch=4,
                resume=False,
            ),
        ),
    ],
    "papers conversations": [
        Ways(
            "in.json -o out.json --model m --base-url http://x --most-tasks 4 --budget-usd 2 "
            "--concurrency 3",
            """
            source = "in.json"
            output = "out.json"
            most-tasks = 4
            budget_usd = 2
            concurrency = 3
            model = {name = "m", base_url = "http://x"}
            """,
            lambda: prill.papers.ConversationsConfig(
                source="in.json",
                output="out.json",
                model=prill.ModelConfig("m", base_url="http://x"),
                most_tasks=4,
                budget_usd=2,
                concurrency=3,
            ),
        ),
    ],
    "rollout": [
        Ways(
            "miniwob --tasks click-link,enter-text --seeds 0-4 --policy react --model m "
            "--no-reasoning --workers 2 -o runs/a",
            """
            environment = {name = "miniwob", tasks = ["click-link", "enter-text"]}
            policy = {name = "react", reasoning = false}
            model = "m"
            seeds = "0-4"
            workers = 2
            output = "runs/a"
            """,
            lambda: prill.RolloutConfig(
                environment=prill.MiniWobConfig(tasks=["click-link", "enter-text"]),
                policy=prill.PolicyConfig("react", reasoning=False),
                model="m",
                seeds="0-4",
                workers=2,
                output=Path("runs/a"),
            ),
        ),
        Ways(
            "webarena --shop --tasks 1001,1002 --viewport 800x600 --oracle-model j "
            "--no-early-stop --seeds 0,1 -o runs/b",
            """
            output = "runs/b"
            seeds = [0, 1]
            early-stop = false
            [environment]
            name = "webarena"
            shop = true
            tasks = [1001, 1002]
            viewport = [800, 600]
            oracle-model = "j"
            """,
            lambda: prill.RolloutConfig(
                environment=prill.WebArenaConfig(
                    shop=True, tasks=[1001, 1002], viewport=(800, 600), oracle_model="j"
                ),
                seeds=range(2),
                early_stop=False,
                output="runs/b",
            ),
        ),
    ],
    "devices": [
        Ways(
            "web ios --appium-url http://10.0.0.2:4723",
            """
            platforms = ["web", "ios"]
            appium-url = "http://10.0.0.2:4723"
            """,
            lambda: prill.DevicesConfig(
                platforms=["web", "ios"], appium_url="http://10.0.0.2:4723"
            ),
        ),
    ],
    "refine filtered-bc": [
        Ways(
            "-o bc --seeds 0,1 --budget-usd 3 --rounds 2 --policy.explore 1 --tables-only",
            """
            output = "bc"
            seeds = "0,1"
            budget_usd = 3
            rounds = 2
            tables_only = true
            policy = {name = "small-text", model = "embedded", explore = 1.0}
            episodes = {environment = "miniwob", tasks = ["click-link"]}
            attempts = {seeds = "0-3"}
            evaluation = {seeds = "10-13"}
            arms = [{name = "self-training"}, {name = "filtered", judge = {name = "noisy", false_positives = 0.1}}]
            """,  # noqa: E501
            lambda: prill.FilteredBCConfig(
                output=Path("bc"),
                seeds=[0, 1],
                budget_usd=3,
                rounds=2,
                tables_only=True,
                policy=prill.PolicyConfig("small-text", model="embedded", explore=1.0),
                episodes={"environment": "miniwob", "tasks": ["click-link"]},
                attempts={"seeds": "0-3"},
                evaluation={"seeds": "10-13"},
                arms=[
                    StudyArm(name="self-training"),
                    StudyArm(
                        name="filtered", judge=prill.JudgeConfig("noisy", false_positives=0.1)
                    ),
                ],
            ),
            file="""
            policy = {name = "small-text", model = "embedded"}
            episodes = {environment = "miniwob", tasks = ["click-link"]}
            attempts = {seeds = "0-3"}
            evaluation = {seeds = "10-13"}
            arms = [{name = "self-training"}, {name = "filtered", judge = {name = "noisy", false_positives = 0.1}}]
            """,  # noqa: E501
        ),
    ],
    "reflexion": [
        Ways(
            "miniwob --tasks click-link --seeds 0-4 --model m --base-url http://x --judge vlm "
            "--judge.model j --judge.frames 2 --second self-report --attempts 3 --keep-best "
            "--lesson-tokens 50 --lessons.model r --baseline b -o out",
            """
            output = "out"
            seeds = "0-4"
            judge = {name = "vlm", model = "j", frames = 2}
            second = "self-report"
            baseline = "b"
            [environment]
            name = "miniwob"
            tasks = "click-link"
            [model]
            name = "m"
            base_url = "http://x"
            [retries]
            attempts = 3
            keep_best = true
            [lessons]
            model = "r"
            lesson_tokens = 50
            """,
            lambda: prill.ReflexionConfig(
                environment=prill.MiniWobConfig(tasks=["click-link"]),
                seeds="0-4",
                model=prill.ModelConfig("m", base_url="http://x"),
                judge=prill.JudgeConfig("vlm", model="j", frames=2),
                second="self-report",
                retries=prill.RetrySpec(attempts=3, keep_best=True),
                lessons=prill.LessonsConfig(model="r", lesson_tokens=50),
                baseline=Path("b"),
                output="out",
            ),
        ),
    ],
    "check-sites": [
        Ways(
            "--tasks 0-9 --reset ./reset.sh --oracle fixed",
            """
            tasks = "0-9"
            reset = "./reset.sh"
            oracle = "fixed"
            """,
            lambda: prill.WebArenaConfig(tasks="0-9", reset="./reset.sh", oracle="fixed"),
        ),
    ],
    "simulate-retries": [
        Ways(
            "-o sim --success 0.5 --runs 40 --recorded runs/first --verdicts v.jsonl --labels "
            "l.jsonl",
            """
            output = "sim"
            success = 0.5
            runs = 40
            recorded = "runs/first"
            verdicts = "v.jsonl"
            labels = "l.jsonl"
            """,
            lambda: prill.SimulationConfig(
                output=Path("sim"),
                success=0.5,
                runs=40,
                recorded="runs/first",
                verdicts="v.jsonl",
                labels=Path("l.jsonl"),
            ),
        ),
    ],
    "show": [
        Ways(
            "shop-17 --verdicts v.jsonl w.jsonl --trajectories t.jsonl --transcripts calls",
            "id = 'shop-17'\nverdicts = ['v.jsonl', 'w.jsonl']\ntrajectories = "
            "['t.jsonl']\ntranscripts = 'calls'",
            lambda: prill.ShowConfig(
                id="shop-17",
                verdicts=["v.jsonl", Path("w.jsonl")],
                trajectories=["t.jsonl"],
                transcripts=Path("calls"),
            ),
        ),
    ],
    "judges": [
        Ways(
            "vlm --prompt-name main",
            "judge = 'vlm'\nprompt-name = 'main'",
            lambda: prill.JudgesConfig(judge="vlm", prompt_name="main"),
        ),
    ],
    "report": [
        Ways(
            "t.jsonl -o r.html --verdicts v.jsonl --labels a.jsonl b.jsonl --truth ada "
            "--no-transcripts --threshold 0.5 --by task,mood",
            """
            trajectories = ["t.jsonl"]
            output = "r.html"
            verdicts = ["v.jsonl"]
            labels = ["a.jsonl", "b.jsonl"]
            truth = "ada"
            transcripts = false
            threshold = 0.5
            by = ["task", "mood"]
            """,
            lambda: prill.ReportConfig(
                trajectories=["t.jsonl"],
                output=Path("r.html"),
                verdicts=["v.jsonl"],
                labels=[Path("a.jsonl"), "b.jsonl"],
                truth="ada",
                transcripts=False,
                threshold=0.5,
                by=["task", "mood"],
            ),
        ),
    ],
    "view": [
        Ways(
            "t.jsonl --verdicts v.jsonl --annotator ada -o l.jsonl --blind --by task --port 8800 "
            "--captions c.jsonl --watch w.jsonl",
            """
            trajectories = ["t.jsonl"]
            verdicts = ["v.jsonl"]
            annotator = "ada"
            output = "l.jsonl"
            blind = true
            by = ["task"]
            port = 8800
            captions = "c.jsonl"
            watch = ["w.jsonl"]
            """,
            lambda: prill.ViewConfig(
                trajectories=[Path("t.jsonl")],
                verdicts=["v.jsonl"],
                annotator="ada",
                output="l.jsonl",
                blind=True,
                by=["task"],
                port=8800,
                captions="c.jsonl",
                watch=["w.jsonl"],
            ),
        ),
    ],
    "annotate": [
        Ways(
            "t.jsonl -o l.jsonl --annotator ada --order random --seed 3 --blind --earlier b.jsonl",
            """
            trajectories = ["t.jsonl"]
            output = "l.jsonl"
            annotator = "ada"
            order = "random"
            seed = 3
            blind = true
            earlier = ["b.jsonl"]
            """,
            lambda: prill.AnnotateConfig(
                trajectories=["t.jsonl"],
                output="l.jsonl",
                annotator=" ada ",
                order="random",
                seed=3,
                blind=True,
                earlier=[Path("b.jsonl")],
            ),
        ),
    ],
    "table": [
        Ways(
            "v.jsonl --labels l.jsonl --source human --format csv -o t.txt",
            "verdicts = 'v.jsonl'\nlabels = 'l.jsonl'\nsource = 'human'\nformat = 'csv'\noutput = "
            "'t.txt'",
            lambda: prill.TableConfig(
                verdicts=Path("v.jsonl"),
                labels="l.jsonl",
                source="human",
                format="csv",
                output=Path("t.txt"),
            ),
        ),
        Ways(
            "v.jsonl --answers",
            "verdicts = 'v.jsonl'\nanswers = true",
            lambda: prill.TableConfig(verdicts="v.jsonl", answers=True),
        ),
    ],
    "merge": [
        Ways(
            "a.jsonl b.jsonl -o v.jsonl",
            "verdicts = ['a.jsonl', 'b.jsonl']\noutput = 'v.jsonl'",
            lambda: prill.MergeConfig(verdicts=["a.jsonl", Path("b.jsonl")], output="v.jsonl"),
        ),
    ],
    "accept": [
        Ways(
            "runs/one", "folder = 'runs/one'", lambda: prill.AcceptConfig(folder=Path("runs/one"))
        ),
    ],
    "check": [
        Ways(
            "a.jsonl runs --images",
            "files = ['a.jsonl', 'runs']\nimages = true",
            lambda: prill.CheckConfig(files=["a.jsonl", Path("runs")], images=True),
        ),
        Ways("--schema labels", "schema = 'labels'", lambda: prill.CheckConfig(schema="labels")),
    ],
    "export": [
        Ways(
            "v.jsonl w.jsonl --to inspect --recording run.eval -o out.eval",
            "verdicts = ['v.jsonl', 'w.jsonl']\nto = 'inspect'\nrecording = 'run.eval'\noutput = "
            "'out.eval'",
            lambda: prill.ExportConfig(
                verdicts=["v.jsonl", Path("w.jsonl")],
                to="inspect",
                recording="run.eval",
                output=Path("out.eval"),
            ),
        ),
    ],
    "convert": [
        Ways(
            "mind2web in -o out --scores s.pkl",
            "source = 'in'\noutput = 'out'\nformat = {name = 'mind2web', scores = 's.pkl'}",
            lambda: prill.ConvertConfig(
                format=prill.FormatConfig("mind2web", scores="s.pkl"),
                source=Path("in"),
                output="out",
            ),
        ),
        Ways(
            "webarena in -o out",
            "format = 'webarena'\nsource = 'in'\noutput = 'out'",
            lambda: prill.ConvertConfig(format="webarena", source="in", output=Path("out")),
        ),
        Ways(
            "tests -o out --goals g.json --goal tea",
            "source = 'tests'\noutput = 'out'\ngoals = 'g.json'\ngoal = 'tea'",
            lambda: prill.ConvertConfig(
                source="tests", output="out", goals=Path("g.json"), goal="tea"
            ),
        ),
    ],
    "rate": [
        Ways(
            "v.jsonl l.jsonl --trajectories t.jsonl --by agent,site --unscored left-out --width "
            "0.1 --source human --plot p.svg",
            """
            verdicts = "v.jsonl"
            plot = "p.svg"
            labels = "l.jsonl"
            trajectories = "t.jsonl"
            by = ["agent", "site"]
            unscored = "left-out"
            width = 0.1
            source = "human"
            """,
            lambda: prill.RateConfig(
                verdicts=Path("v.jsonl"),
                labels="l.jsonl",
                trajectories="t.jsonl",
                by=["agent", "site"],
                unscored="left-out",
                width=0.1,
                source="human",
                plot="p.svg",
            ),
        ),
    ],
    "best": [
        Ways(
            "t.jsonl --verdicts v.jsonl -o best.jsonl --labels l.jsonl --source human --attempts 4 "
            "--plot p.svg",
            """
            verdicts = "v.jsonl"
            plot = "p.svg"
            trajectories = "t.jsonl"
            output = "best.jsonl"
            labels = "l.jsonl"
            source = "human"
            attempts = 4
            """,
            lambda: prill.BestConfig(
                verdicts=Path("v.jsonl"),
                trajectories="t.jsonl",
                output="best.jsonl",
                labels="l.jsonl",
                source="human",
                attempts=4,
                plot=Path("p.svg"),
            ),
        ),
        Ways(
            "t.jsonl --compare c.jsonl --model gpt-4o --base-url http://x --captioner given "
            "--seed 3 --transitions 5 --budget-usd 2 --retry-unscored --no-transcripts",
            """
            trajectories = "t.jsonl"
            compare = "c.jsonl"
            model = {name = "gpt-4o", base-url = "http://x"}
            captioner = "given"
            budget-usd = 2
            retry-unscored = true
            transcripts = false
            [comparison]
            seed = 3
            transitions = 5
            """,
            lambda: prill.BestConfig(
                trajectories="t.jsonl",
                compare=Path("c.jsonl"),
                model={"name": "gpt-4o", "base_url": "http://x"},
                captioner="given",
                comparison=prill.ComparisonSpec(seed=3, transitions=5),
                budget_usd=2,
                retry_unscored=True,
                transcripts=False,
            ),
        ),
    ],
    "protocols": [
        Ways(
            "t.jsonl -o out --model gpt-4o --base-url http://x --protocols webjudge,uv "
            "--captioner given --limit 50 --retry-unscored --no-transcripts --budget-usd 5 "
            "--labels l.jsonl --source human --truth unanimous",
            """
            trajectories = ["t.jsonl"]
            output = "out"
            labels = "l.jsonl"
            source = "human"
            truth = "unanimous"
            model = {name = "gpt-4o", base-url = "http://x"}
            protocols = ["webjudge", "uv"]
            captioner = "given"
            limit = 50
            retry-unscored = true
            transcripts = false
            budget-usd = 5
            """,
            lambda: prill.ProtocolsConfig(
                trajectories=["t.jsonl"],
                output=Path("out"),
                model=prill.ModelConfig("gpt-4o", base_url="http://x"),
                protocols=["webjudge", "uv"],
                captioner="given",
                labels="l.jsonl",
                source="human",
                truth="unanimous",
                limit=50,
                retry_unscored=True,
                transcripts=False,
                budget_usd=5,
            ),
        ),
    ],
    "failures": [
        Ways(
            "t.jsonl --verdicts v.jsonl w.jsonl --labels l.jsonl --source human --clusters 4",
            """
            trajectories = ["t.jsonl"]
            verdicts = ["v.jsonl", "w.jsonl"]
            labels = ["l.jsonl"]
            source = "human"
            clusters = 4
            """,
            lambda: prill.FailuresConfig(
                trajectories=[Path("t.jsonl")],
                verdicts=["v.jsonl", "w.jsonl"],
                labels=["l.jsonl"],
                source="human",
                clusters=4,
            ),
        ),
    ],
    "compare": [
        Ways(
            "old.jsonl new.jsonl --trajectories o.jsonl n.jsonl --a-again o2.jsonl --labels "
            "l.jsonl --require B>=A-0.02 --unscored bounds --junit c.xml --report r.html",
            """
            a = "old.jsonl"
            b = "new.jsonl"
            trajectories = ["o.jsonl", "n.jsonl"]
            a_again = ["o2.jsonl"]
            labels = ["l.jsonl"]
            require = "B>=A-0.02"
            unscored = "bounds"
            junit = "c.xml"
            report = "r.html"
            """,
            lambda: prill.CompareConfig(
                a="old.jsonl",
                b=Path("new.jsonl"),
                trajectories=["o.jsonl", "n.jsonl"],
                a_again=["o2.jsonl"],
                labels=["l.jsonl"],
                require="B>=A-0.02",
                unscored="bounds",
                junit=Path("c.xml"),
                report="r.html",
            ),
        ),
    ],
    "agree": [
        Ways(
            "v.jsonl l.jsonl --trajectories t.jsonl --by site,agent --against o.jsonl --truth "
            "first --disagreements d.jsonl --suspects s.jsonl",
            """
            verdicts = "v.jsonl"
            labels = "l.jsonl"
            trajectories = "t.jsonl"
            by = ["site", "agent"]
            against = "o.jsonl"
            truth = "first"
            disagreements = "d.jsonl"
            suspects = "s.jsonl"
            """,
            lambda: prill.AgreeConfig(
                verdicts=Path("v.jsonl"),
                labels="l.jsonl",
                trajectories=Path("t.jsonl"),
                by=["site", "agent"],
                against="o.jsonl",
                truth="first",
                disagreements="d.jsonl",
                suspects="s.jsonl",
            ),
        ),
        Ways(
            "p.jsonl --metric aitw r.jsonl",
            """
            verdicts = "p.jsonl"
            labels = "r.jsonl"
            metric = "aitw"
            """,
            lambda: prill.AgreeConfig(verdicts="p.jsonl", labels="r.jsonl", metric="aitw"),
        ),
        Ways(
            "v.jsonl l.jsonl --metric answers --trajectories t.jsonl",
            """
            verdicts = "v.jsonl"
            labels = "l.jsonl"
            metric = "answers"
            trajectories = "t.jsonl"
            """,
            lambda: prill.AgreeConfig(
                verdicts="v.jsonl", labels="l.jsonl", metric="answers", trajectories="t.jsonl"
            ),
        ),
    ],
    "fit": [
        Ways(
            "a.jsonl b.jsonl l.jsonl -o m.json --harden --families stop-early,error-end --source "
            "human --seed 3",
            """
            trajectories = ["a.jsonl", "b.jsonl"]
            labels = "l.jsonl"
            output = "m.json"
            harden = true
            families = ["stop-early", "error-end"]
            source = "human"
            seed = 3
            """,
            lambda: prill.FitConfig(
                trajectories=["a.jsonl", Path("b.jsonl")],
                labels=Path("l.jsonl"),
                output="m.json",
                harden=True,
                families=["stop-early", "error-end"],
                source="human",
                seed=3,
            ),
        ),
        Ways(
            "a.jsonl --kind prior --out-of-fold held.jsonl l.jsonl -o m.json --with v.jsonl "
            "w.jsonl --kappa 0.7 --learning-curve c.svg --format webarena --goals g.json",
            """
            trajectories = ["a.jsonl"]
            labels = "l.jsonl"
            output = "m.json"
            format = "webarena"
            goals = "g.json"
            kind = "prior"
            out-of-fold = "held.jsonl"
            with-verdicts = ["v.jsonl", "w.jsonl"]
            kappa = 0.7
            learning-curve = "c.svg"
            """,
            lambda: prill.FitConfig(
                trajectories=["a.jsonl"],
                labels="l.jsonl",
                output="m.json",
                kind="prior",
                out_of_fold=Path("held.jsonl"),
                format="webarena",
                goals=Path("g.json"),
                with_verdicts=["v.jsonl", Path("w.jsonl")],
                kappa=0.7,
                learning_curve=Path("c.svg"),
            ),
        ),
    ],
    "calibrate": [
        Ways(
            "v.jsonl l.jsonl -o c.json --trajectories t.jsonl --cost-fp 1 --cost-fn 4 --method "
            "isotonic --plot c.svg",
            """
            verdicts = "v.jsonl"
            labels = "l.jsonl"
            output = "c.json"
            trajectories = "t.jsonl"
            cost-fp = 1
            cost-fn = 4
            method = "isotonic"
            plot = "c.svg"
            """,
            lambda: prill.CalibrateConfig(
                verdicts=Path("v.jsonl"),
                labels="l.jsonl",
                output="c.json",
                trajectories="t.jsonl",
                cost_fp=1,
                cost_fn=4,
                method="isotonic",
                plot="c.svg",
            ),
        ),
        Ways(
            "v.jsonl l.jsonl -o c.json --target-precision 0.9 --truth Ann",
            """
            verdicts = "v.jsonl"
            labels = "l.jsonl"
            output = "c.json"
            target-precision = 0.9
            truth = "Ann"
            """,
            lambda: prill.CalibrateConfig(
                verdicts="v.jsonl",
                labels="l.jsonl",
                output="c.json",
                target_precision=0.9,
                truth="Ann",
            ),
        ),
    ],
    "redteam": [
        Ways(
            "a.jsonl l.jsonl -o red --judge modular --captioner text --model m --base-url http://x "
            "--attacks claim-stop,pad-after --attacks mine.py:politely --max-shift 2 --no-resume",
            """
            trajectories = ["a.jsonl"]
            labels = "l.jsonl"
            output = "red"
            attacks = ["claim-stop", "pad-after", "mine.py:politely"]
            max-shift = 2
            resume = false
            judge = {name = "modular", captioner = "text"}
            model = {name = "m", base-url = "http://x"}
            """,
            lambda: prill.RedteamConfig(
                trajectories=["a.jsonl"],
                labels=Path("l.jsonl"),
                output=Path("red"),
                judge={"name": "modular", "captioner": "text"},
                model=prill.ModelConfig("m", base_url="http://x"),
                attacks=["claim-stop", "pad-after", "mine.py:politely"],
                max_shift=2,
                resume=False,
            ),
        ),
        Ways(
            "a.jsonl b.jsonl l.jsonl -o red --judge oracle --judge.labels o.jsonl --source human "
            "--budget-usd 0.5 --limit 2 --format atif --goal tea",
            """
            trajectories = ["a.jsonl", "b.jsonl"]
            labels = "l.jsonl"
            output = "red"
            format = "atif"
            goal = "tea"
            source = "human"
            budget-usd = 0.5
            limit = 2
            judge = {name = "oracle", labels = "o.jsonl"}
            """,
            lambda: prill.RedteamConfig(
                trajectories=["a.jsonl", "b.jsonl"],
                labels="l.jsonl",
                output="red",
                judge=prill.JudgeConfig("oracle", labels="o.jsonl"),
                source="human",
                budget_usd=0.5,
                limit=2,
                format="atif",
                goal="tea",
            ),
        ),
    ],
    "batch write": [
        Ways(
            "t.jsonl -o b --judge modular --captioner text --model gpt-4o --base-url http://x "
            "--limit 2",
            """
            trajectories = ["t.jsonl"]
            output = "b"
            judge = {name = "modular", captioner = "text"}
            model = {name = "gpt-4o", base-url = "http://x"}
            limit = 2
            """,
            lambda: prill.BatchWriteConfig(
                trajectories=["t.jsonl"],
                output="b",
                judge=prill.JudgeConfig("modular", captioner="text"),
                model={"name": "gpt-4o", "base_url": "http://x"},
                limit=2,
            ),
        ),
    ],
    "batch submit": [
        Ways(
            "b --wait --every 5 --api anthropic",
            """
            folder = "b"
            wait = true
            every = 5
            api = "anthropic"
            """,
            lambda: prill.BatchSubmitConfig(folder=Path("b"), wait=True, every=5, api="anthropic"),
        ),
    ],
    "batch collect": [
        Ways(
            "b a.jsonl c.jsonl -o v.jsonl --retry-unscored --no-transcripts",
            """
            folder = "b"
            answers = ["a.jsonl", "c.jsonl"]
            output = "v.jsonl"
            retry-unscored = true
            transcripts = false
            """,
            lambda: prill.BatchCollectConfig(
                folder="b",
                answers=["a.jsonl", "c.jsonl"],
                output="v.jsonl",
                retry_unscored=True,
                transcripts=False,
            ),
        ),
    ],
    "caption": [
        Ways(
            "t.jsonl -o c.jsonl --model m --base-url http://x --max-tokens 9 --last 2 --engine "
            "ray --no-resume",
            """
            trajectories = ["t.jsonl"]
            output = "c.jsonl"
            captioner = {model = {name = "m", base_url = "http://x"}, max-tokens = 9}
            last = 2
            engine = "ray"
            resume = false
            """,
            lambda: prill.CaptionConfig(
                trajectories=["t.jsonl"],
                output="c.jsonl",
                captioner=prill.CaptionerConfig(
                    "vlm", model={"name": "m", "base_url": "http://x"}, max_tokens=9
                ),
                last=2,
                engine="ray",
                resume=False,
            ),
        ),
        Ways(
            "t.jsonl -o data --for-training --near 3 --captioner given --format atif --goal tea",
            """
            trajectories = ["t.jsonl"]
            format = "atif"
            goal = "tea"
            output = "data"
            for-training = true
            captioner = "given"
            training = {near = 3}
            """,
            lambda: prill.CaptionConfig(
                trajectories=["t.jsonl"],
                output="data",
                for_training=True,
                captioner="given",
                training={"near": 3},
                format="atif",
                goal="tea",
            ),
        ),
    ],
    "filter": [
        Ways(
            "t.jsonl --verdicts v.jsonl -o rows --threshold 0.7 --rows sft,kto --policy react "
            "--no-policy.reasoning",
            """
            trajectories = ["t.jsonl"]
            verdicts = "v.jsonl"
            output = "rows"
            filter = {threshold = 0.7}
            export = {rows = ["sft", "kto"]}
            policy = {name = "react", reasoning = false}
            """,
            lambda: prill.FilterConfig(
                trajectories=["t.jsonl"],
                verdicts="v.jsonl",
                output=Path("rows"),
                filter={"threshold": 0.7},
                export={"rows": ["sft", "kto"]},
                policy=prill.TeacherConfig("react", reasoning=False),
            ),
        ),
        Ways(
            "t.jsonl --verdicts v.jsonl -o rows --policy.history 2 --no-stop-at-reached "
            "--recording-format atif --goals g.json",
            """
            trajectories = ["t.jsonl"]
            recording-format = "atif"
            goals = "g.json"
            verdicts = "v.jsonl"
            output = "rows"
            policy = {history = 2}
            [filter]
            stop-at-reached = false
            """,
            lambda: prill.FilterConfig(
                trajectories=["t.jsonl"],
                verdicts="v.jsonl",
                output="rows",
                filter={"stop_at_reached": False},
                policy={"name": "plain", "history": 2},
                recording_format="atif",
                goals="g.json",
            ),
        ),
    ],
    "train policy": [
        Ways(
            "r.jsonl -o m --preset small-text --rank 4 --no-gradient-checkpointing --model qwen "
            "--seed 3 --gpus 8xH200",
            """
            rows = "r.jsonl"
            output = "m"
            preset = {name = "small-text", rank = 4, gradient-checkpointing = false, model = "qwen", seed = 3}
            gpus = "8xH200"
            """,  # noqa: E501
            lambda: prill.TrainPolicyConfig(
                rows="r.jsonl",
                output="m",
                preset=prill.PresetConfig(
                    "small-text", rank=4, gradient_checkpointing=False, model="qwen", seed=3
                ),
                gpus="8xH200",
            ),
        ),
    ],
    "train captioner": [
        Ways(
            "r.jsonl -o m --learning-rate 2e-5 --engine swift --no-resume",
            """
            rows = "r.jsonl"
            output = "m"
            preset = {learning_rate = 2e-5, engine = "swift"}
            resume = false
            """,
            lambda: prill.TrainCaptionerConfig(
                rows="r.jsonl",
                output=Path("m"),
                preset={"learning_rate": 2e-5, "engine": "swift"},
                resume=False,
            ),
        ),
    ],
    "train judge": [
        Ways(
            "t.jsonl -o m --teacher v.jsonl --labels l.jsonl --judge steps --judge.max-chars 900 "
            "--grouping goal --no-balance",
            """
            rows = "t.jsonl"
            output = "m"
            teacher-verdicts = "v.jsonl"
            labels = "l.jsonl"
            judge = {name = "steps", max-chars = 900}
            grouping = "goal"
            preset = {name = "judge", balance = false}
            """,
            lambda: prill.TrainJudgeConfig(
                rows="t.jsonl",
                output="m",
                teacher_verdicts="v.jsonl",
                labels="l.jsonl",
                judge=prill.JudgeConfig("steps", max_chars=900),
                grouping="goal",
                preset=prill.PresetConfig("judge", balance=False),
            ),
        ),
    ],
    "train ranker": [
        Ways(
            "g.jsonl -o m --negatives 9",
            """
            rows = "g.jsonl"
            output = "m"
            preset = {name = "deberta-ranker", negatives = 9}
            """,
            lambda: prill.papers.TrainRankerConfig(
                rows="g.jsonl", output="m", preset=prill.PresetConfig("deberta-ranker", negatives=9)
            ),
        ),
    ],
    "train planner": [
        Ways(
            "g.jsonl -o m --policy self-map --policy.group 4 --model t5",
            """
            rows = "g.jsonl"
            output = "m"
            policy = {name = "self-map", group = 4}
            preset = {model = "t5"}
            """,
            lambda: prill.papers.TrainPlannerConfig(
                rows="g.jsonl",
                output="m",
                policy=prill.TeacherConfig("self-map", group=4),
                preset={"model": "t5"},
            ),
        ),
    ],
}
CASES = [
    pytest.param(name, ways, id=f"{name}-{index}")
    for name, each in WAYS.items()
    for index, ways in enumerate(each)
]


def read(name: str, argv: list[str]) -> tuple[Config, Switches]:
    """The configuration that a command line gives."""
    command = COMMANDS[name]
    derived, rest = derive(
        load_object(command.config),
        argv,
        command.layout,
        prog=f"prill {name}",
        dry_run=command.dry_run,
    )
    return derived.read(rest)


def test_every_command_is_compared() -> None:
    assert set(WAYS) == set(COMMANDS)


@pytest.mark.parametrize(("name", "ways"), CASES)
def test_three_ways_make_one_configuration(name: str, ways: Ways, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(ways.toml)
    python = ways.python()
    (tmp_path / "first.toml").write_text(ways.file)
    assert (
        read(name, [*([str(tmp_path / "first.toml")] if ways.file else []), *ways.flags.split()])[0]
        == python
    )
    assert read(name, [str(tmp_path / "run.toml")])[0] == python
    assert type(python).load(tmp_path / "run.toml") == python


@pytest.mark.parametrize(("name", "ways"), CASES)
def test_configuration_survives_its_own_table(name: str, ways: Ways) -> None:
    python = ways.python()
    assert type(python).read(python.table()) == python


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_short_and_starts_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from prill.cli import main

    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    shown = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0
    assert len(shown) < 60
    assert sum(line.strip().startswith(f"prill {name}") for line in shown[:8]) == 3


@pytest.mark.parametrize("name", COMMANDS)
def test_fields_are_described(name: str) -> None:
    options: Any = config_options(load_object(COMMANDS[name].config))
    assert [option.name for option in options.values() if not option.description] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_configurations_are_frozen(name: str) -> None:
    config = WAYS[name][0].python()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, next(iter(config_options(type(config)))), "x")


def test_flags_come_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(WAYS["score"][0].toml)
    config, _ = read("score", [str(tmp_path / "s.toml"), "--judge.frames", "5", "--limit", "9"])
    assert config == WAYS["score"][0].python().copy_with(
        limit=9, judge=prill.JudgeConfig("vlm", frames=5)
    )
    other, _ = read("score", [str(tmp_path / "s.toml"), "--judge", "self-report"])
    assert other.table()["judge"] == {"name": "self-report"}


def test_what_a_part_makes_of_a_word_is_left_to_it(tmp_path: Path) -> None:
    config, _ = read(
        "score",
        [
            "t.jsonl",
            "-o",
            "v.jsonl",
            "--judge",
            "vlm",
            "--model",
            "m",
            "--cache",
            str(tmp_path / "kept"),
        ],
    )
    assert isinstance(config, prill.ScoreConfig)
    assert config.model == prill.ModelConfig("m", cache=str(tmp_path / "kept"))
    assert isinstance(config.model, prill.ModelConfig) and prill.model(config.model).name == "m"


@pytest.mark.parametrize(
    ("argv", "trajectories"),
    [
        ("-o v a --judge vlm b", ("a", "b")),
        ("a --judge vlm --limit 1 b -o v", ("a", "b")),
        ("-o v --judge vlm -- -a b", ("-a", "b")),
        ("- -o v --judge vlm", ("-",)),
    ],
)
def test_words_may_stand_among_flags(argv: str, trajectories: tuple[str, ...]) -> None:
    config, _ = read("score", argv.split())
    assert isinstance(config, prill.ScoreConfig)
    assert config.trajectories == trajectories


@dataclass(frozen=True, kw_only=True)
class Odd(Config):
    """A list, a word after it, a list of names, a list of paths."""

    runs: Sequence[str | Path]
    labels: str | Path
    names: Sequence[str] = ()
    more: Sequence[str | Path] = ()


@pytest.mark.parametrize(
    ("argv", "table"),
    [
        ("a b c", {"runs": ["a", "b"], "labels": "c"}),
        ("--names x,y a --names z b", {"runs": ["a"], "labels": "b", "names": ["x", "y", "z"]}),
        ("a b --more c,d e", {"runs": ["a"], "labels": "b", "more": ["c,d", "e"]}),
    ],
)
def test_last_word_after_a_list_is_the_next_field(argv: str, table: dict[str, Any]) -> None:
    derived, rest = derive(Odd, argv.split(), FlagLayout(("runs", "labels")), prog="prill odd")
    assert derived.read(rest)[0] == Odd.read(table)


def test_words_without_a_place_are_refused() -> None:
    derived, rest = derive(Odd, ["a", "b"], FlagLayout(("labels",)), prog="prill odd")
    with pytest.raises(UsageError, match="b: unexpected arguments"):
        derived.read(rest)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--judge", "vlm", "s.toml"],
            "s.toml: unexpected argument; a file of options must be the first argument",
        ),
        (["--judgee", "vlm"], "--judgee: unknown option (did you mean '--judge'?)"),
        (
            ["--judge", "vlm", "--judge.frame", "2"],
            "--judge.frame: unknown option (did you mean '--judge.frames'?)",
        ),
        (["--judge", "vlm", "--judge.frames", "two"], "--judge.frames: Expected `int`"),
        (
            ["--judge", "vlm", "--rubrics", "2"],
            "--rubrics: judge 'vlm' has no such option; judges with this option: rubric",
        ),
        (
            ["--judge", "modular", "--captioner.model", "eyes"],
            "--captioner.model: --captioner is missing, and the options depend on its "
            "name; captioners with this option: vlm",
        ),
        (
            ["--judge", "modular", "--captioner.eyes", "2"],
            "--captioner.eyes: --captioner is missing, and the options depend on its name",
        ),
        (
            ["--judge", "modular", "--captioner", "text", "--captioner.timeout", "2"],
            "--captioner.timeout: captioner 'text' has no such option; captioners with "
            "this option: vlm",
        ),
        (
            ["--judge", "vlm", "--reasoning-effort", "lots"],
            "--model.reasoning-effort: Invalid enum value 'lots'; expected one of none, minimal, "
            "low, medium, high",
        ),
        (
            ["--judge", "vlm", "--judge.max_tokens", "2"],
            "--judge.max_tokens: unknown option (did you mean '--judge.max-tokens'?)",
        ),
        (
            ["--judge", "vlm", "--model", "m", "--budget_usd=2"],
            "--budget_usd: unknown option (did you mean '--budget-usd'?)",
        ),
        (
            ["--judge", "vlm", "--model", "m", "--model.top-q", "2"],
            "--model.top-q: unknown option (did you mean '--model.top-p'?)",
        ),
        (
            ["--judge", "webjudge", "--top-k", "2"],
            "--top-k: ambiguous option; write --judge.top-k or --model.top-k",
        ),
        (["--judge", "", "--captioner", "text"], "--judge: expected the name of a judge, got ''"),
        ([], "--judge is missing"),
    ],
)
def test_wrong_flags_are_named(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read("score", ["t.jsonl", "-o", "v.jsonl", *argv])
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("limits = 3", "limits: unknown option (did you mean 'limit'?)"),
        ("limit = 0", "limit: Expected `int` >= 1"),
        ("judge = {nam = 'vlm'}", "judge.name is missing; name the judge (given: nam)"),
    ],
)
def test_wrong_keys_are_named_with_their_file(table: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f"trajectories = ['t.jsonl']\noutput = 'v.jsonl'\n{table}\n")
    with pytest.raises(UsageError) as raised:
        read("score", [str(path), *(() if "judge" in table else ("--judge", "vlm"))])
    assert str(raised.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"output": 5}, "output: Expected `str`, got 5"),
        ({"trajectories": "t.jsonl"}, "trajectories: Expected `array`, got 't.jsonl'"),
        (
            {"trajectories": ["t.jsonl", None]},
            "trajectories: Expected `str`, got `null` - at `$[1]`",
        ),
        ({"transcripts": 1.5}, "transcripts: Expected `bool | str`"),
    ],
)
def test_paths_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        prill.ScoreConfig(
            **{"trajectories": ["t.jsonl"], "output": "v.jsonl", "judge": "vlm", **given}
        )
    assert message in str(raised.value)


def test_a_first_word_alone_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    from prill.cli import main

    assert main(["train", "--help"]) == 0
    listed = capsys.readouterr().out
    assert all(
        f"  {line} " in listed
        for line in (f"prill {name}" for name in COMMANDS if name.startswith("train "))
    )
    assert main(["train"]) == 2
    assert "name a subcommand: policy, captioner, judge, ranker, planner" in capsys.readouterr().err
    assert main(["train", "plicy", "rows.jsonl"]) == 2
    assert "unknown 'plicy' (did you mean 'policy'?)" in capsys.readouterr().err


def test_options_without_a_name_are_those_of_the_default() -> None:
    config, _ = read("caption", ["t.jsonl", "-o", "c.jsonl", "--captioner.max-tokens", "9"])
    assert isinstance(config, prill.CaptionConfig) and config.captioner == prill.CaptionerConfig(
        "vlm", max_tokens=9
    )
    played, _ = read(
        "reflexion",
        ["miniwob", "--tasks", "a", "-o", "o", "--judge", "oracle", "--policy.max-tokens", "9"],
    )
    assert isinstance(played, prill.ReflexionConfig) and played.policy == prill.PolicyConfig(
        "react", max_tokens=9
    )
    with pytest.raises(
        UsageError, match="captioner 'text' has no such option; captioners with this option: vlm"
    ):
        read(
            "caption",
            ["t.jsonl", "-o", "c.jsonl", "--captioner", "text", "--captioner.max-tokens", "9"],
        )


def test_options_of_parts_may_be_paths() -> None:
    """They are the same as their text, whether the part is described or made at once."""
    labels = ROOT / "datasets/samples/miniwob/labels.jsonl"
    described = prill.JudgeConfig("noisy", labels=labels)
    assert described == prill.JudgeConfig("noisy", labels=str(labels))
    assert described.table() == {"name": "noisy", "labels": str(labels)}
    infos = [prill.judge("noisy", labels=file).info for file in (labels, str(labels))]
    assert infos == [prill.judge(described).info] * 2


def test_every_run_has_both_forms() -> None:
    """`prill.x(config)` and `await prill.x_async(config)`, and so in `prill.papers` and
    `prill.papers.bench`.
    """
    faces = {
        prill: "prill.runs.",
        prill.papers: ("prill.papers.mind2web.", "prill.papers.synapse.runs"),
        prill.papers.bench: "prill.papers.bench.run",
    }
    for face, places in faces.items():
        found = {
            name for name, (module, _) in homes(face.__name__).items() if module.startswith(places)
        }
        runs = {name for name in found if name.islower() and name[:5] != "plan_"}
        plain = {name for name in runs if not name.endswith("_async")}
        assert plain and plain == {name.removesuffix("_async") for name in runs - plain}
        assert [
            name
            for name in runs
            if inspect.iscoroutinefunction(getattr(face, name)) != name.endswith("_async")
        ] == []


def test_a_run_that_computes_is_awaited_in_a_thread(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    prill.write_trajectories(
        path,
        [prill.Trajectory(id="a", task=prill.Task(goal="g"), steps=(), final=prill.Observation())],
    )
    config = prill.CheckConfig(files=[path])
    threads: list[str] = []

    async def both() -> tuple[object, object]:
        awaited = prill.check_async(
            config, progress=lambda: threads.append(threading.current_thread().name)
        )
        return await awaited, prill.check(config)

    awaited, plain = asyncio.run(both())
    assert str(awaited) == str(plain)
    assert threads and threading.main_thread().name not in threads
