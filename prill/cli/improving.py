"""Presents the results of commands that improve agents."""

from __future__ import annotations

import asyncio
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import msgspec

from prill.cli.layout import EXIT_ALL, EXIT_SOME, Switches, say
from prill.cli.showing import PhaseBar, print_problems, print_result, progress_bar, show_plan
from prill.io.kinds import LABELS
from prill.io.store import encode
from prill.refine.export import figures
from prill.refine.filtered_bc import Audience
from prill.refine.outcomes import RESULTS
from prill.refine.reflexion import ReflexionProgress
from prill.refine.report import summary_lines, true_precision
from prill.refine.results import BY_ROUND, TABLES
from prill.refine.training.preflight import Preflight
from prill.refine.training.spec import OF_PAGES, TrainSpec
from prill.refine.training.trainer import Progress
from prill.runs.filter import FilterConfig, FilterResult
from prill.runs.filter import filter as run_filter
from prill.runs.filtered_bc import FilteredBCConfig, plan_filtered_bc
from prill.runs.filtered_bc import filtered_bc as run_filtered_bc
from prill.runs.reflexion import TABLE, ReflexionConfig, plan_reflexion, reflexion_async
from prill.runs.simulation import CHART, FIGURES, SimulationConfig, simulate_retries
from prill.runs.train import TrainConfig, plan_train
from prill.runs.train import train as run_train
from prill.runs.watch import WatchConfig
from prill.runs.watch import watch as run_watch

EXIT_ALARM = 1
_MOVES = {"play": "playing", "judge": "judging", "reflect": "reflecting"}


def simulation(config: SimulationConfig, switches: Switches) -> int:
    """Runs `prill simulate-retries`; returns 0."""
    result = simulate_retries(config)
    folder = Path(result.output)
    print(json.dumps(json.loads((folder / FIGURES).read_bytes())) if switches.json else result)
    say(f"-> {folder / CHART}")
    return EXIT_ALL


def reflexion(config: ReflexionConfig, switches: Switches) -> int:
    """Runs `prill reflexion`.

    Returns 0 if every task ended in an answer, 3 if some have none, 130 if interrupted.
    """
    if switches.dry_run:
        return show_plan("reflexion", plan_reflexion(config), as_json=switches.json)
    with stage_bar() as show:
        result = asyncio.run(reflexion_async(config, progress=show))
    results = result.results
    print(json.dumps(msgspec.to_builtins(results.table)) if switches.json else result)
    for warning in results.warnings:
        say(f"prill reflexion: attempts after the first: {warning}")
    for name, why in result.unanswered.items():
        say(f"prill reflexion: {name}: {why}")
    folder = Path(result.output)
    say(f"-> {folder / RESULTS}, {folder / TABLE}")
    if results.lost_labels:
        count = sum(len(task.attempts) for task in results.tasks)
        say(
            f"prill reflexion: {folder / LABELS}: the labels of {results.lost_labels} of "
            f"{count} attempts are missing, so their true outcome is unknown; restore the "
            "file, and run the command again"
        )
    return EXIT_ALL if result.complete else EXIT_SOME


@contextmanager
def stage_bar() -> Iterator[Callable[[ReflexionProgress], None]]:
    """Shows one bar that restarts with each stage of each attempt."""
    with closing(PhaseBar(unit="task")) as bar:
        yield lambda stage: bar.show(
            f"attempt {stage.attempt}: {_MOVES[stage.move]}", stage.done, stage.total
        )


def filtered_bc(config: FilteredBCConfig, switches: Switches) -> int:
    """Runs `prill refine filtered-bc`.

    Returns 0, 3 if an arm had no training rows, 130 if interrupted.
    """
    if switches.dry_run:
        return show_plan("refine", plan_filtered_bc(config), as_json=switches.json)
    with _quiet_libraries(), closing(PhaseBar()) as bar:
        audience = Audience(
            bar.say,
            lambda tally: bar.show("judging", tally.made + tally.skipped, 0),
            bar.show,
            lambda now: bar.show("training", now.step, now.steps, _loss(now)),
        )
        result = run_filtered_bc(config, audience=audience)
    print(json.dumps(msgspec.to_builtins(result.results)) if switches.json else result)
    folder = Path(result.output)
    say(f"-> {folder / TABLES}, {folder / RESULTS}, {folder / BY_ROUND}")
    return EXIT_ALL if result.all_learnt else EXIT_SOME


def _loss(now: Progress) -> str:
    return "" if now.loss is None else f"loss {now.loss:.4f}"


def watch(config: WatchConfig, switches: Switches) -> int:
    """Runs `prill watch`.

    Returns 0 without an alarm, 1 with one at the end of a log, 3 if lines could not be read.
    """
    with progress_bar(unit=" lines", disable=None, leave=False) as bar:

        def show(log: str) -> None:
            bar.set_description(log, refresh=False)
            bar.update()

        result = run_watch(config, progress=show)
    print_problems("watch", result.problems)
    print_result(result, result.table, switches, config.output)
    if result.alarms:
        return EXIT_ALARM
    return EXIT_SOME if result.problems else EXIT_ALL


def filter(config: FilterConfig, switches: Switches) -> int:
    """Runs `prill filter`; returns 3 if broken lines or images reduced the rows."""
    with closing(PhaseBar()) as bar:
        result = run_filter(config, progress=bar.show)
    _print_filtered(result, as_json=switches.json)
    print_problems("filter", result.cautions, len(result.cautions))
    print_problems("filter", [*result.broken, *result.exported.problems])
    images = any(why == "missing or broken image" for why in result.exported.lost)
    return EXIT_SOME if result.broken or images else EXIT_ALL


def _print_filtered(result: FilterResult, *, as_json: bool) -> None:
    exported, filtered = result.exported, result.filtered
    if as_json:
        right = true_precision(filtered, result.truth) if result.truth is not None else None
        labelled = (
            {}
            if right is None
            else {"labelled": right[1], "truly_successful": right[0], "fitted": result.fitted}
        )
        print(
            encode(
                {"output": result.output, "rows": exported.rows, **figures(filtered), **labelled}
            )
            .decode()
            .rstrip()
        )
        return
    for line in summary_lines(filtered, result.truth):
        print(line)
    for why, count in sorted(
        figures(filtered)["steps_lost"].items(), key=lambda item: (-item[1], item[0])
    ):
        print(f"  lost {count:>6,}  {why}")
    if filtered.unmatched:
        say(f"{filtered.unmatched:,} verdicts are of other trajectories")
    say(str(result).splitlines()[-1])


def train(config: TrainConfig, switches: Switches) -> int:
    """Runs `prill train …`; returns 130 if Ctrl-C stopped it with a checkpoint."""
    facts = None
    with _quiet_libraries(), closing(PhaseBar(disable=not _is_first())) as bar:

        def progress(now: Progress) -> None:  # the rate covers this run only
            bar.show("steps", now.step, now.steps, _loss(now), before=now.step - 1)

        if switches.dry_run:
            facts = plan_train(config, say=bar.show)
        else:
            result = run_train(config, progress=progress, say=bar.show)
    if not _is_first():
        return EXIT_ALL
    if facts is not None:
        print(
            json.dumps(asdict(facts))
            if switches.json
            else _format_preflight(facts, config.spec(), config.fold_count)
        )
    else:
        say(result)
    return EXIT_ALL


def _format_preflight(facts: Preflight, spec: TrainSpec, folds: int) -> str:
    """Formats the results of the checks as text."""
    limit = "no limit known" if facts.limit is None else f"limit {facts.limit:,}"
    left_out = f", {facts.overlong:,} too long and left out" if facts.overlong else ""
    at_once = f"{facts.accumulation} x {facts.micro_batch} on each of {facts.processes}"
    of_model = (
        f"{facts.parameters / 1e6:,.1f} M parameters, {facts.trained / 1e6:,.2f} M trained "
        f"({spec.method})"
    )
    answers, each = (
        f"answers of up to {facts.answer_tokens:,}",
        f"a checkpoint has {_size(facts.checkpoint)}",
    )
    lines = {
        "rows": f"{facts.learnt:,} to learn from, {facts.held_out:,} held out{left_out}",
        **({} if spec.trains in OF_PAGES else {"pictures": f"{facts.pictures:,}, all readable"}),
        "tokens": f"{facts.mean_tokens:,.0f} a row, at most {facts.longest:,} ({limit}); {answers}",
        "model": f"{spec.model}: {of_model}",
        "steps": (
            f"{facts.steps:,} of {spec.batch} rows ({at_once}), {facts.epochs:.1f} times each row"
        ),
        "memory": f"about {_size(facts.memory)} on each device",
        "disk": f"about {_size(facts.disk_needed)}, of {_size(facts.disk_free)} free; {each}",
        "work": f"{facts.flops:.2e} floating point operations a step; {_time(facts)}",
        **({"folds": f"{folds} more trainings, each without a part of the runs"} if folds else {}),
    }
    return "\n".join(f"{name:<9}{text}" for name, text in lines.items())


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _time(facts: Preflight) -> str:
    if facts.seconds is None:
        return f"the time on {facts.device} is not known"
    hours, minutes = divmod(round(facts.seconds / 60), 60)
    time = (
        f"{hours} h {minutes:02} min"
        if hours
        else f"{minutes} min"
        if minutes
        else "less than a minute"
    )
    return f"roughly {time} on {facts.device}"


def _is_first() -> bool:
    """Returns whether this is rank 0 of the processes that `accelerate launch` started."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Silences the progress bars and notices of libraries; failures raise errors."""
    from prill.refine.training.weights import silence_libraries

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        silence_libraries()
        # Threads that busy-wait for each other are very slow if another process uses a core. The
        # variable is read when torch is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        yield
