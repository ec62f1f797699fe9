"""Commands that measure how reliable judges are."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands.base import JUDGE, MORE_OF_MODEL, Command
from prill.cli.layout import FlagLayout

COMMANDS: Mapping[str, Command] = {
    "agree": Command(
        "measure the agreement of verdicts with labels",
        "prill.runs.trust.agree:AgreeConfig",
        "prill.cli.trusting:agree",
        FlagLayout(("verdicts", "labels")),
        (
            "prill agree v.jsonl labels.jsonl --trajectories t.jsonl --by site,agent",
            "prill agree v.jsonl labels.jsonl --against other.jsonl --disagreements differ.jsonl",
            "prill agree predicted.jsonl recorded.jsonl --metric aitw",
        ),
    ),
    "rate": Command(
        "estimate success rates, corrected for the judge's errors with labels on some runs",
        "prill.runs.trust.rate:RateConfig",
        "prill.cli.trusting:rate",
        FlagLayout(("verdicts", "labels")),
        (
            "prill rate v.jsonl labels.jsonl --trajectories t.jsonl --by agent --plot rates.svg",
            "prill rate v.jsonl labels.jsonl --trajectories t.jsonl --width 0.1",
            "prill rate v.jsonl labels.jsonl --unscored left-out --json",
        ),
    ),
    "compare": Command(
        "compare two agents on the same tasks, with a gate for continuous integration",
        "prill.runs.trust.compare:CompareConfig",
        "prill.cli.trusting:compare",
        FlagLayout(
            ("a", "b"),
            metavars={"require": "RULE"},
        ),
        (
            "prill compare old.jsonl new.jsonl --trajectories old-runs.jsonl new-runs.jsonl",
            'prill compare old.jsonl new.jsonl --require "B >= A - 0.02" --junit compare.xml '
            "--markdown compare.md",
            "prill compare old.jsonl new.jsonl --trajectories runs.jsonl --report report.html "
            "--plot difference.svg",
        ),
        "Exit codes: 0 compared, and B meets --require, 1 B does not meet it, 6 undecided: "
        "the interval contains the required value,\n"
        "2 nothing can be compared or bad usage.",
    ),
    "protocols": Command(
        "compare published judge protocols on the same trajectories: success rates, "
        "agreement, ranking, cost",
        "prill.runs.trust.protocols:ProtocolsConfig",
        "prill.cli.trusting:protocols",
        FlagLayout(
            ("trajectories",),
            metavars={"output": "DIR", "protocols": "NAME,…"},
        ),
        (
            "prill protocols t.jsonl -o protocols --model gpt-4o --dry-run",
            "prill protocols t.jsonl -o protocols --model gpt-4o --protocols "
            "webjudge,agenttrek,webvoyager --limit 50",
            "prill protocols t.jsonl -o protocols --model gpt-4o --captioner given --budget-usd 5",
        ),
        "Prompts are worded by prill; the protocol is the authors'. protocols.md in the "
        "folder lists each protocol's source and how\n"
        "prill's version differs. Runs with unclear replies are unscored; `official` is "
        "the rate by the authors' own rule.\n"
        "Replies are kept in FOLDER/replies, where protocols share them.\n"
        "Exit codes: 0 done, 3 done and some verdicts are unscored, 2 nothing could be "
        "read or bad usage, 4 endpoint down,\n"
        "130 interrupted.",
        dry_run=True,
    ),
    "best": Command(
        "pick the best of several attempts at each task, and estimate what such picks are worth",
        "prill.runs.trust.best:BestConfig",
        "prill.cli.trusting:best",
        FlagLayout(
            ("trajectories",),
            hidden=MORE_OF_MODEL,
        ),
        (
            "prill best t.jsonl --verdicts v.jsonl -o best.jsonl",
            "prill best t.jsonl --verdicts v.jsonl --labels labels.jsonl --plot best.svg",
            "prill best t.jsonl --compare comparisons.jsonl --model gpt-4o -o best.jsonl",
        ),
        "--compare asks for facts about each action, and then once per task which attempt is the "
        "best. A task whose comparison fails is unscored.\n"
        "Exit codes: 0 done, 3 done and some compared tasks are unscored, 2 nothing could be "
        "read or bad usage, 4 endpoint down,\n"
        "130 interrupted.",
        dry_run=True,
    ),
    "failures": Command(
        "why runs failed: causes, and groups of similar reasons",
        "prill.runs.trust.failures:FailuresConfig",
        "prill.cli.trusting:failures",
        FlagLayout(("trajectories",)),
        (
            "prill failures t.jsonl --verdicts v.jsonl",
            "prill failures t.jsonl --verdicts a.jsonl b.jsonl --labels labels.jsonl --clusters 5",
            "prill failures t.jsonl --labels labels.jsonl --json",
        ),
    ),
    "calibrate": Command(
        "calibrate a judge's scores into probabilities, and choose a threshold",
        "prill.runs.trust.fitting:CalibrateConfig",
        "prill.cli.trusting:calibrate",
        FlagLayout(("verdicts", "labels")),
        (
            "prill calibrate v.jsonl labels.jsonl -o calibration.json --trajectories t.jsonl "
            "--plot reliability.svg",
            "prill calibrate v.jsonl labels.jsonl -o calibration.json --target-precision 0.9",
            "prill calibrate calibrate.toml --cost-fp 1 --cost-fn 4",
        ),
        "Use labels that the judge was not fitted to: on those it was fitted to, it is "
        "more accurate and more confident. For a fitted\n"
        "judge, use the verdicts of `prill fit --out-of-fold`. `prill score --calibration "
        "FILE` applies the calibration.",
    ),
    "fit": Command(
        "fit a judge to your own labelled trajectories, without a language model",
        "prill.runs.trust.fitting:FitConfig",
        "prill.cli.trusting:fit",
        FlagLayout(
            ("trajectories", "labels"),
            renamed={"with_verdicts": "--with"},
        ),
        (
            "prill fit t.jsonl labels.jsonl -o student.json --out-of-fold held-out.jsonl",
            "prill fit t.jsonl labels.jsonl --with a.jsonl b.jsonl -o stack.json --kappa 0.7",
            "prill fit fit.toml --harden --families stop-early,error-end",
        ),
        "Exit codes: 0 fitted, 3 some broken lines were left out, 2 too few labelled runs "
        "or bad usage.",
    ),
    "redteam": Command(
        "attack judges with false claims and injected text",
        "prill.runs.trust.redteam:RedteamConfig",
        "prill.cli.trusting:redteam",
        FlagLayout(("trajectories", "labels"), hidden=JUDGE, metavars={"output": "DIR"}),
        (
            "prill redteam t.jsonl labels.jsonl -o red --judge vlm --model gpt-4o --attacks "
            "claim-answer,pad-after --limit 50",
            "prill redteam t.jsonl labels.jsonl -o red --judge student --judge.model student.json "
            "--max-shift 2",
            "prill redteam redteam.toml --dry-run",
        ),
        "Do not attack a fitted judge with its own training data: the result is too good.\n"
        "docs/how-to/red-team.md explains attacks.\n"
        "Exit codes: 0 done, 1 an attack adds more than --max-shift, 3 done and some "
        "verdicts are unscored, 2 nothing could\n"
        "be read or bad usage, 4 endpoint down, 130 interrupted.",
        dry_run=True,
    ),
    "view": Command(
        "read, search, compare and label runs in a browser, also while their files grow",
        "prill.runs.view:ViewConfig",
        "prill.cli.pages:view",
        FlagLayout(
            ("trajectories",),
            metavars={"output": "LABELS", "watch": "W"},
        ),
        (
            "prill view t.jsonl --verdicts v.jsonl --labels l.jsonl",
            "prill view t.jsonl --verdicts v.jsonl --annotator ada -o ada.jsonl --blind",
            "prill view logs --verdicts vlm.jsonl steps.jsonl --by task --watch watch.jsonl",
        ),
        "The page is served on this machine only, and follows files that a run is writing. "
        "`prill report` writes the same page as a file.\n"
        "Exit codes: 0 stopped, 3 stopped and some lines could not be read, 2 bad usage.",
    ),
    "annotate": Command(
        "label trajectories by hand in a browser",
        "prill.runs.annotate:AnnotateConfig",
        "prill.cli.pages:annotate",
        FlagLayout(
            ("trajectories",),
            metavars={"output": "LABELS"},
        ),
        (
            "prill annotate t.jsonl -o labels.jsonl --annotator ada --order informative "
            "--limit 100 --verdicts v.jsonl",
            "prill annotate t.jsonl -o labels.jsonl --annotator ada --judge examples/ask.toml "
            "--blind",
            "prill annotate t.jsonl -o labels.jsonl --annotator ada --earlier bob.jsonl",
        ),
        "The page is that of `prill view --blind`, for a queue of trajectories: it asks for "
        "success, failure, not executable or unsure, and if wanted for a label of each step, side "
        "effects and a note; with --judge ask, for an answer to each of the judge's questions. "
        "Every decision is on disk before the next trajectory comes up; the "
        "same command resumes.\n"
        "Exit codes: 0 ended, 3 ended and some lines are broken and left out, 2 nothing could "
        "be read or bad usage.",
    ),
    "report": Command(
        "write one HTML page with screenshots, verdicts and labels",
        "prill.runs.report:ReportConfig",
        "prill.cli.reporting:report",
        FlagLayout(
            ("trajectories",),
            metavars={"output": "PAGE"},
        ),
        (
            "prill report t.jsonl -o report.html --verdicts v.jsonl --labels l.jsonl",
            "prill report t.jsonl -o report.html --verdicts vlm.jsonl steps.jsonl --embed",
            "prill report runs/retries -o report.html",
        ),
        "Exit codes: 0 all shown, 3 some lines or images could not be read, 2 nothing could be "
        "read or bad usage.",
    ),
}
