"""Commands that measure how reliable judges are."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands.base import JUDGE, Command
from prill.cli.layout import FlagLayout

COMMANDS: Mapping[str, Command] = {
    "agree": Command(
        "measure the agreement of one or more judges with labels",
        "prill.evaluators.agreement.agree:AgreeConfig",
        "prill.evaluators.agreement.agree:agree",
        FlagLayout(("verdicts", "labels")),
        (
            "prill agree v.jsonl labels.jsonl --trajectories t.jsonl --by site,agent "
            "--disagreements differ.jsonl",
            "prill agree vlm.jsonl student.jsonl labels.jsonl --trajectories t.jsonl",
            "prill agree predicted.jsonl recorded.jsonl --metric aitw",
        ),
    ),
    "rate": Command(
        "estimate success rates, corrected for the judge's errors with labels on some runs",
        "prill.evaluators.agreement.rate:RateConfig",
        "prill.evaluators.agreement.rate:rate",
        FlagLayout(("verdicts", "labels")),
        (
            "prill rate v.jsonl labels.jsonl --trajectories t.jsonl --by agent --plot rates.svg",
            "prill rate v.jsonl labels.jsonl --trajectories t.jsonl --width 0.1",
            "prill rate v.jsonl labels.jsonl --unscored left-out --json",
        ),
    ),
    "compare": Command(
        "compare two agents on the same tasks, with a gate for continuous integration",
        "prill.evaluators.agreement.differences:CompareConfig",
        "prill.evaluators.agreement.differences:compare",
        FlagLayout(
            ("a", "b"),
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
    "calibrate": Command(
        "calibrate a judge's scores into probabilities, and choose a threshold",
        "prill.evaluators.fitted.fitting:CalibrateConfig",
        "prill.evaluators.fitted.fitting:calibrate",
        FlagLayout(("verdicts", "labels")),
        (
            "prill calibrate v.jsonl labels.jsonl -o calibration.json --trajectories t.jsonl "
            "--plot reliability.svg",
            "prill calibrate v.jsonl labels.jsonl -o calibration.json --target-precision 0.9",
            "prill calibrate calibrate.toml --cost-fp 1 --cost-fn 4",
        ),
        "Use labels that the judge was not fitted to: on those it was fitted to, it is "
        "more accurate and more confident. For a fitted\n"
        "judge, use the verdicts of `prill fit --out-of-fold`. `prill score --judge.calibration "
        "FILE` applies the calibration.",
    ),
    "fit": Command(
        "fit a judge to your own labelled trajectories, without a language model",
        "prill.evaluators.fitted.fitting:FitConfig",
        "prill.evaluators.fitted.fitting:fit",
        FlagLayout(("trajectories", "labels")),
        (
            "prill fit t.jsonl labels.jsonl -o student.json --out-of-fold held-out.jsonl",
            "prill fit t.jsonl labels.jsonl --with-verdicts a.jsonl -o stack.json --kappa 0.7",
            "prill fit fit.toml --harden --families stop-early,error-end",
        ),
        "Exit codes: 0 fitted, 3 some broken lines were left out, 2 too few labelled runs "
        "or bad usage.",
    ),
    "redteam": Command(
        "attack judges with false claims and injected text",
        "prill.evaluators.attacks.redteam:RedteamConfig",
        "prill.evaluators.attacks.redteam:redteam",
        FlagLayout(("trajectories", "labels"), hidden=JUDGE),
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
        plan="plan_redteam",
        unit="verdict",
    ),
    "view": Command(
        "read, search, compare and label runs in a browser, also while their files grow",
        "prill.ui.view.run:ViewConfig",
        "prill.ui.view.run:view",
        FlagLayout(("trajectories",)),
        (
            "prill view t.jsonl --verdicts v.jsonl --labels l.jsonl",
            "prill view logs --verdicts vlm.jsonl steps.jsonl --by task",
            "prill view --captions captions.jsonl --annotator ada",
        ),
        "The page is served on this machine only, and follows files that a run is writing. "
        "`prill report` writes the same page as a file.\n"
        "Exit codes: 0 stopped, 3 stopped and some lines could not be read, 2 bad usage.",
    ),
    "annotate": Command(
        "label trajectories in a browser: prill view with --blind",
        "prill.ui.view.run:ViewConfig",
        "prill.ui.view.run:annotate",
        FlagLayout(("trajectories",)),
        (
            "prill annotate t.jsonl -o labels.jsonl --annotator ada --verdicts v.jsonl --order "
            "informative --limit 100",
            "prill annotate t.jsonl -o labels.jsonl --annotator ada --judge examples/ask.toml",
            "prill annotate t.jsonl -o labels.jsonl --annotator ada --labels bob.jsonl",
        ),
        "It asks for success, failure, not executable or unsure, and if wanted for a label of "
        "each step, side effects and a note; with --judge ask, for an answer to each of the "
        "judge's questions. Every decision is on disk before the next trajectory comes up; the "
        "same command resumes.\n"
        "Exit codes: 0 stopped, 3 stopped and some lines could not be read, 2 bad usage.",
    ),
    "report": Command(
        "write one HTML page with screenshots, verdicts and labels",
        "prill.ui.report.run:ReportConfig",
        "prill.ui.report.run:report",
        FlagLayout(
            ("trajectories",),
        ),
        (
            "prill report t.jsonl -o report.html --verdicts v.jsonl --labels l.jsonl",
            "prill report t.jsonl -o report.html --verdicts vlm.jsonl steps.jsonl --embed",
            "prill report runs/retries -o report.html",
        ),
        "Exit codes: 0 all shown, 3 some lines or images could not be read, 2 nothing could be "
        "read or bad usage.",
        unit="traj",
    ),
}
