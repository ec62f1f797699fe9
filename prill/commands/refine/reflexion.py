"""`prill reflexion`: attempt, verdict, lesson, attempt; with any policy that takes lessons, any environment and any judge."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from prill.commands.options import (
    add_label_options,
    add_options_of,
    make_model,
    model_options_given,
    options_given,
    settings_of,
)
from prill.commands.refine.reflexion_file import judge_of, read_reflexion_file, words_of
from prill.commands.rollout import (
    Environments,
    EpisodePlan,
    Session,
    Strict,
    add_environments,
    add_episode_options,
    patience_of,
    session,
    template_of_case,
)
from prill.commands.rollout.cases import Case, fingerprint
from prill.commands.rollout.webarena import check_sites
from prill.commands.runs.plan import NOTHING_RECORDED, RunPlan, add_dry_run, show_plan, times, together
from prill.errors import UsageError
from prill.evaluators.baselines import NoiseSpec, NoisyLabels
from prill.evaluators.fitted.calibration import read_calibration
from prill.evaluators.labels import task_of
from prill.evaluators.registry import make_judge
from prill.files.checksums import Checksums
from prill.files.kinds import TRAJECTORIES
from prill.files.outputs import check_output, expect_place, write_output
from prill.labels.truth import gold_labels
from prill.models.devices import at_the_same_time
from prill.protocols import Evaluator, LanguageModel, Learner
from prill.refine.outcomes import RESULTS, Results, read_results, table_lines
from prill.refine.reflector import Reflective, Reflector, ReflectorSpec, learner_of
from prill.refine.reflexion import Challenge, LabelJudge, Play, Stage, check_again, play_again
from prill.refine.retries import RetrySpec, with_second_opinion
from prill.refine.simulation import Recorded as RecordedTruths
from prill.refine.simulation import (
    SimulationSpec,
    judge_of_calibration,
    judge_of_rates,
    judge_of_verdicts,
    simulate,
    simulation_chart,
    simulation_lines,
)
from prill.registry import OptionError, read_options
from prill.run_folder import LABELS
from prill.store import read_labels, read_trajectories, read_verdicts
from prill.types import Usage

if TYPE_CHECKING:
    from tqdm import tqdm

TABLE = "results.md"
_EXAMPLE = "Example: prill reflexion miniwob --tasks click-link --seeds 0-4 --model M --judge vlm --judge-model J -o runs/r"
_MOVES = {"play": "playing", "judge": "judging", "reflect": "reflecting"}
_UNGRADED = (
    "no oracle grades what is done in {0}: attempts are counted as the judge has them, and what is true of them stays unknown "
    "until people label them (prill annotate {1}/trajectories.jsonl -o {1}/labels.jsonl, then this command again)"
)
# The states in which a task has no answer that the judge or the last attempt stands for.
_TROUBLE = ("unscored", "no_lesson", "broken", "not_begun")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options: those of every environment as `prill rollout` has them, the judge's, and those of the retries."""
    parser.epilog = _EXAMPLE
    _environments(parser)
    drawn = parser.add_argument_group("simulation, instead of an environment")
    drawn.add_argument(
        "--simulate", action="store_true", help="play nothing: draw what retries come to, by the judge's error rates"
    )
    drawn.add_argument("-o", "--output", metavar="DIR", help="folder for simulation.md, simulation.svg and simulation.json")
    add_options_of(drawn, SimulationSpec)
    drawn.add_argument("--recorded", metavar="DIR", help="attempts of another run or recording, instead of --success")
    drawn.add_argument("--verdicts", metavar="V", help="verdicts of your judge, instead of error rates; with --labels")
    drawn.add_argument("--labels", metavar="L", help="labels of the same attempts")
    drawn.add_argument(
        "--calibration", metavar="FILE", help="calibration of that judge; alone: its own record of how the judge errs"
    )
    add_label_options(drawn)


def _environments(parser: argparse.ArgumentParser) -> Environments:
    return add_environments(parser, _options, required=False, example=_EXAMPLE)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(evaluator=None)
    parser.add_argument("-o", "--output", metavar="DIR", help="folder to write to; a run is taken up where it ended")
    add_dry_run(parser)
    parser.add_argument(
        "--check", action="store_true", help="webarena: play nothing, but try each login, the reset and an oracle"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="these options from TOML or JSON, in tables (docs/reflexion.md); flags come first"
    )
    add_episode_options(parser)
    judge = parser.add_argument_group("judge")
    judge.add_argument("--judge-model", metavar="M", help="the judge's model (default: the policy's)")
    judge.add_argument("--judge", action=_JudgeWords, default=[], metavar="NAME", help="who judges; KEY=VALUE: an option of it")
    judge.add_argument("--second", metavar="NAME", help="a judge (as --judge) that is asked before an attempt is thrown away")
    add_options_of(parser.add_argument_group("retries"), RetrySpec)
    lessons = parser.add_argument_group("lessons")
    lessons.add_argument("--reflector-model", metavar="M", help="the model that draws lessons (default: the policy's)")
    add_options_of(lessons, ReflectorSpec)
    lessons.add_argument(
        "--baseline", metavar="DIR", help="another run: its attempts and lessons are taken, as far as both judges agree"
    )
    lessons.add_argument(
        "--retry-unscored", action="store_true", help="ask again for verdicts and lessons that could not be given"
    )


class _JudgeWords(argparse.Action):
    """Until this command has a configuration: `--judge NAME` and `--judge KEY=VALUE`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if "=" in values and not values.endswith((".toml", ".json")):
            namespace.judge = [*namespace.judge, values]
        else:
            namespace.evaluator = values


def run(args: argparse.Namespace) -> int:
    """Plays, judges and reflects; 0 when every task ended in an answer, 3 when some are without one, 130 when interrupted."""
    if args.environment is None and not args.simulate:
        raise UsageError("name an environment, or give --simulate")
    args = _with_file(args)
    if args.environment is not None and args.check:
        return _check(args)
    for name, flag in (("output", "-o"), ("evaluator", "--judge")):
        if getattr(args, name, None) is None and not (args.simulate and name == "evaluator"):
            raise UsageError(f"{flag} is missing")
    expect_place(args.output, "a folder")
    if args.environment is None:
        return _simulate(args)
    check_output(Path(args.output) / TRAJECTORIES, "trajectories", continued=True)
    try:
        results = asyncio.run(_play(args))
        if isinstance(results, RunPlan):
            return show_plan(args, results)
    except KeyboardInterrupt:
        print("\nstopped; the same command takes up where this run ended", file=sys.stderr)
        return 130
    assert results.table is not None
    text = "\n".join((*table_lines(results.table), *_order_lines(results)))
    write_output(Path(args.output) / TABLE, f"{text}\n".encode())
    print(json.dumps(msgspec.to_builtins(results.table)) if args.json else text)
    for warning in results.warnings:
        print(f"prill reflexion: attempts after the first: {warning}", file=sys.stderr)
    for task in results.tasks:
        if task.ended in _TROUBLE:
            last = task.attempts[-1] if task.attempts else None
            why = "" if last is None else f": {last.problem or last.reason}"
            print(f"prill reflexion: {task.name}: {task.ended.replace('_', ' ')}{why}", file=sys.stderr)
    print(f"-> {Path(args.output) / RESULTS}, {Path(args.output) / TABLE}", file=sys.stderr)
    if results.lost_labels:
        labels, count = Path(args.output) / LABELS, sum(len(task.attempts) for task in results.tasks)
        print(
            f"prill reflexion: {labels}: the labels of {results.lost_labels} of {count} attempts are gone, so their truth "
            "counts as unknown; put the file back, and give the command again",
            file=sys.stderr,
        )
    return 3 if results.lost_labels or any(task.ended in _TROUBLE for task in results.tasks) else 0


def _order_lines(results: Results) -> list[str]:
    """Which order the attempts were played in, where it is not the usual one."""
    task_by_task = results.settings.get("retries", {}).get("order") == "task"
    return ["", "All attempts at a task were played before the next task (--order task)."] if task_by_task else []


def _with_file(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments with those of `--config`, as if they stood first on the command line."""
    if args.environment is None or args.config is None:
        return argparse.Namespace(**vars(args), judge_options={})
    file = read_reflexion_file(args.config)
    parser = Strict(prog="prill reflexion")
    options = _environments(parser).parser_of(args.environment)
    words = words_of(file, args.config, args.environment, options, args.words)
    given = argparse.Namespace(command=args.command, simulate=False, judge_options=judge_of(file))
    return parser.parse_args([args.environment, *words, *args.words], given)


def _check(args: argparse.Namespace) -> int:
    """Says of each thing that real sites need whether it is there; 0 when all are, else 3."""
    if args.environment != "webarena":
        raise UsageError("--check looks at WebArena's sites: prill reflexion webarena --check")

    async def look(folder: Path) -> int:
        problems = 0
        async for finding in check_sites(args, folder):
            print(
                f"{'missing' if finding.problem else 'ok':<8}{finding.what}{f': {finding.problem}' if finding.problem else ''}"
            )
            problems += finding.problem is not None
        return problems

    args.policy, args.concurrency = args.policy or "react", 16
    with tempfile.TemporaryDirectory(prefix="prill-check-") as folder:
        return 3 if asyncio.run(look(Path(folder))) else 0


def _simulate(args: argparse.Namespace) -> int:
    """Draws success against retries, and writes table, chart and figures."""
    spec = SimulationSpec(**read_options(SimulationSpec, options_given(args, SimulationSpec), "the simulation", lax=True))
    judge = judge_of_rates(spec)
    if args.verdicts or args.labels:
        if not (args.verdicts and args.labels):
            raise UsageError("--verdicts and --labels go together: they tell how the judge errs")
        truth = gold_labels(read_labels(args.labels), args.source, args.truth)[1]
        calibration = read_calibration(args.calibration) if args.calibration else None
        judge = judge_of_verdicts(list(read_verdicts(args.verdicts)), truth, calibration)
    elif args.calibration:
        judge = judge_of_calibration(read_calibration(args.calibration))
    recorded = _recorded_attempts(Path(args.recorded)) if args.recorded else ()
    outcomes = simulate(spec, judge, recorded)
    text, folder = "\n".join(simulation_lines(outcomes, judge.rates)), Path(args.output)
    figures = {
        "settings": asdict(spec),
        "judge": dict(zip(("false_positives", "false_negatives", "unscored"), judge.rates, strict=True)),
        "outcomes": {way: [row._asdict() for row in rows] for way, rows in outcomes.items()},
    }
    for name, data in (
        ("md", f"{text}\n"),
        ("svg", simulation_chart(outcomes)),
        ("json", json.dumps(figures, indent=1) + "\n"),
    ):
        write_output(folder / f"simulation.{name}", data.encode())
    print(text)
    print(f"-> {folder / 'simulation.svg'}", file=sys.stderr)
    return 0


def _recorded_attempts(folder: Path) -> list[RecordedTruths]:
    """The truths of a run's attempts by task: in their order where they were retries, else to be drawn from."""
    Checksums(folder).check()
    if (folder / RESULTS).exists():
        tasks = ([a.truth for a in task.attempts if a.truth is not None] for task in read_results(folder).tasks)
        found = [RecordedTruths(truths, in_order=True) for truths in tasks if truths]
    else:
        labels = {label.id: label.success for label in read_labels(folder / LABELS)}
        by_task: dict[str, list[bool]] = {}
        for item in read_trajectories(folder / TRAJECTORIES, on_error="skip"):
            if (truth := labels.get(item.id)) is not None:
                by_task.setdefault(task_of(item), []).append(truth)
        found = [RecordedTruths(truths) for truths in by_task.values()]
    if not found:
        raise UsageError(f"{folder}: no attempt there has a label that is decided")
    return found


async def _play(args: argparse.Namespace) -> Results | RunPlan:
    """Makes everything that the run needs, and plays; for a dry run, what would be played."""
    args.policy = args.policy or "react"
    retries = RetrySpec(**read_options(RetrySpec, options_given(args, RetrySpec), "the retries", lax=True))
    asked = ReflectorSpec(**read_options(ReflectorSpec, options_given(args, ReflectorSpec), "the lessons", lax=True))
    async with session(args) as made:
        if made.setting.oracle is None:
            print(f"prill reflexion: {_UNGRADED.format(args.environment, args.output)}", file=sys.stderr)
        judge = _judge(args, retries, graded=made.setting.oracle is not None)
        model = make_model(args, args.reflector_model) if args.reflector_model else None
        make = partial(learner_of_case, made, model, asked)
        first = make(Case(""), (), 0)
        names = {"policy": made.plan.agent, "environment": args.environment, "run": fingerprint(list(made.run))}
        lessons = {**asdict(asked), "model": _model_name(first, model), "prompt": Reflector(_Nobody()).prompt}
        challenges = [challenge_of_case(made, make, row) for row in made.rows]
        run: dict[str, Any] = {
            "play": play_of(made, args),
            "baseline": Path(args.baseline) if args.baseline else None,
            "settings": {**names, "lessons": lessons},
        }
        if args.dry_run:
            check_again(made.pool, challenges, judge, Path(args.output), retries, **run)
            return plan_retries(made, args, judge, retries.attempts, asks=isinstance(first, Reflective))
        with stage_bar() as show:
            return await play_again(
                made.pool,
                challenges,
                judge,
                Path(args.output),
                retries,
                **run,
                retry_broken=args.retry_broken,
                retry_unscored=args.retry_unscored,
                progress=show,
            )


def play_of(made: Session, args: argparse.Namespace) -> Play[Any]:
    """How the episodes of a session are played."""
    return Play(
        oracle=made.setting.oracle,
        max_steps=args.max_steps,
        timeout=args.episode_timeout,
        early_stop=made.early_stop,
        patience=patience_of(args),
        leftovers=made.setting.leftovers,
    )


def plan_retries(made: Session, args: argparse.Namespace, judge: Evaluator | None, attempts: int, *, asks: bool) -> RunPlan:
    """What retries would do at most: a task that is solved is not tried again. `asks`: lessons are drawn by a model."""
    episodes = EpisodePlan.of(made, args, attempts)
    lessons = episodes.episodes * (attempts - 1)
    who = "the environment's labels" if judge is None else judge.info.name
    work = [episodes.line(), f"judge at most {episodes.todo} attempts by {who}"]
    if attempts > 1:
        work.append(f"draw at most {lessons} lessons")
    usages = [
        episodes.all_usage,
        times(episodes.recorded.judging(judge, args.prices), episodes.todo),
        None if asks and lessons else Usage(),
    ]
    unknown = "what a lesson takes is not known beforehand" if episodes.usage is not None and usages[2] is None else None
    return RunPlan(
        work=(*work, f"would be written to {args.output}"),
        counts={
            "episodes": episodes.episodes,
            "tasks": episodes.tasks,
            "done": episodes.done,
            "attempts": attempts,
            "verdicts": episodes.todo,
            "lessons": lessons,
        },
        usage=together(usages),
        unknown=unknown or NOTHING_RECORDED,
        most=True,
        most_seconds=episodes.most_seconds,
    )


def _judge(args: argparse.Namespace, retries: RetrySpec, *, graded: bool) -> Evaluator | None:
    """The judge, with a second one behind it where one is asked for; None: the environment's labels decide."""
    if args.evaluator == "oracle" and not (args.judge or args.judge_options):
        if args.second:
            raise UsageError("--second: nobody needs a second opinion on the oracle's labels")
        return None
    options = {**args.judge_options, **settings_of(args.judge)}
    shared = model_options_given(args)
    lax = bool(args.judge or shared)  # words of the command line are read as what an option asks for; those of a file are not
    defaults = {"concurrency": args.concurrency, **shared}
    if name := args.judge_model or args.model:
        defaults["model"] = name

    def make(name: str, **options: Any) -> Evaluator:
        if name == "noisy" and "labels" not in options:  # those of this run, which are not there yet
            if not graded:
                raise UsageError(f"{name}: there is no oracle here whose labels it could change; give it `labels`")
            spec = NoiseSpec(**read_options(NoiseSpec, options, "judge 'noisy'", lax=lax))
            return NoisyLabels(LabelJudge(Path(args.output) / LABELS), spec)
        return make_judge(name, defaults=defaults, lax=lax, choose_captioner=lambda: "text", **options)

    try:
        with at_the_same_time():
            judge = make(args.evaluator, **options)
            second = None if args.second is None else make(args.second)
    except OptionError as error:
        if error.option in settings_of(args.judge):
            raise UsageError(f"--judge {error}") from None
        if error.option not in args.judge_options:
            raise
        raise UsageError(f"{args.config}: judge.{error}") from None
    return judge if second is None else with_second_opinion(judge, second, retries.threshold)


def learner_of_case(
    made: Session, model: LanguageModel | None, asked: ReflectorSpec, row: Case, lessons: Sequence[str], n: int
) -> Learner:
    """The agent of an attempt, with its lessons. Raises UsageError for a policy that takes none."""
    return learner_of(made.plan.make(replace(row, attempt=n)), lessons, model, asked)


def challenge_of_case(made: Session, make: Callable[[Case, Sequence[str], int], Learner], row: Case) -> Challenge[Any]:
    """One task and seed to try several times; `make` makes the agent of an attempt, with the lessons before it."""
    return Challenge(
        name=f"{row.task}-s{row.seed}",
        id=lambda number: made.id(replace(row, attempt=number)),
        task=partial(made.setting.task, name=row.task, seed=row.seed),
        learner=partial(make, row),
        agent=made.plan.agent,
        metadata={"seed": row.seed, **template_of_case(made, row)},
        needs=made.setting.needs.get(row.task, frozenset()),
    )


def _model_name(learner: Learner, model: LanguageModel | None) -> str:
    if not isinstance(learner, Reflective):
        return "the policy's own"
    return (model or learner.reflector.model).name


class _Nobody:
    """Stands where a reflector wants a model that is never asked."""

    name = "none"

    async def complete(self, messages: Any, *, form: Any = None, max_tokens: int = 1024, prompt: str = "") -> NoReturn:
        """Raises UsageError."""
        raise UsageError("no model is asked here")


@contextmanager
def stage_bar() -> Iterator[Callable[[Stage], None]]:
    """One bar that begins anew with each stage of each attempt."""
    from prill.cli.showing import progress_bar

    with progress_bar(unit="task", dynamic_ncols=True, file=sys.stderr, delay=0.2) as bar:
        yield partial(_show, bar, {})


def _show(bar: tqdm[NoReturn], last: dict[str, object], stage: Stage) -> None:
    words = f"attempt {stage.attempt}: {_MOVES[stage.move]}"
    if last.get("words") != words:
        last["words"] = words
        bar.reset(total=stage.total)
        bar.set_description_str(words, refresh=False)
    bar.n = stage.done
    bar.update(0)
