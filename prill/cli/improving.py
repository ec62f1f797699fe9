"""How the commands that make agents better, or look after their rewards, show what they do."""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from prill.cli.showing import progress_bar, say_problems, show_plan
from prill.cli.words import Switches
from prill.files.outputs import is_stdout, words_beside
from prill.refine.filtered_bc import Audience
from prill.refine.outcomes import RESULTS
from prill.refine.reflexion import Stage
from prill.refine.results import BY_ROUND, TABLES
from prill.run_folder import LABELS
from prill.runs.filtered_bc import FilteredBCConfig, plan_filtered_bc
from prill.runs.filtered_bc import filtered_bc as run_filtered_bc
from prill.runs.reflexion import TABLE, ReflexionConfig, plan_reflexion, reflexion_async
from prill.runs.simulation import CHART, FIGURES, SimulationConfig, simulate_retries
from prill.runs.watch import WatchConfig
from prill.runs.watch import watch as run_watch

if TYPE_CHECKING:
    from tqdm import tqdm

    from prill.scoring import Tally

EXIT_ALL, EXIT_ALARM, EXIT_SOME_WITHOUT, EXIT_INTERRUPTED = 0, 1, 3, 130
_MOVES = {"play": "playing", "judge": "judging", "reflect": "reflecting"}


def simulation(config: SimulationConfig, switches: Switches) -> int:
    """`prill simulate-retries`; 0."""
    result = simulate_retries(config)
    folder = Path(result.output)
    print(json.dumps(json.loads((folder / FIGURES).read_bytes())) if switches.json else result)
    print(f"-> {folder / CHART}", file=sys.stderr)
    return EXIT_ALL


def reflexion(config: ReflexionConfig, switches: Switches) -> int:
    """`prill reflexion`; 0 when every task ended in an answer, 3 when some are without one, 130 when interrupted."""
    if switches.dry_run:
        return show_plan("reflexion", plan_reflexion(config), as_json=switches.json)
    say = partial(print, file=sys.stderr)
    try:
        with stage_bar() as show:
            result = asyncio.run(reflexion_async(config, progress=show))
    except KeyboardInterrupt:
        say("\nstopped; the same command takes up where this run ended")
        return EXIT_INTERRUPTED
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
            f"prill reflexion: {folder / LABELS}: the labels of {results.lost_labels} of {count} attempts are gone, so their "
            "truth counts as unknown; put the file back, and give the command again"
        )
    return EXIT_ALL if result.complete else EXIT_SOME_WITHOUT


@contextmanager
def stage_bar() -> Iterator[Callable[[Stage], None]]:
    """One bar that begins again with each stage of each attempt."""
    with progress_bar(unit="task", dynamic_ncols=True, file=sys.stderr, delay=0.2) as bar:
        shown = ""

        def show(stage: Stage) -> None:
            nonlocal shown
            words = f"attempt {stage.attempt}: {_MOVES[stage.move]}"
            if words != shown:
                shown = words
                bar.reset(total=stage.total)
                bar.set_description_str(words, refresh=False)
            bar.n = stage.done
            bar.update(0)

        yield show


def filtered_bc(config: FilteredBCConfig, switches: Switches) -> int:
    """`prill refine filtered-bc`; 0, 3 when an arm had nothing to learn from, 130 when interrupted."""
    if switches.dry_run:
        return show_plan("refine", plan_filtered_bc(config), as_json=switches.json)
    try:
        with _shown() as audience:
            result = run_filtered_bc(config, audience=audience)
    except KeyboardInterrupt:
        print("\nstopped; the same command takes up where this study ended", file=sys.stderr)
        return EXIT_INTERRUPTED
    print(json.dumps(msgspec.to_builtins(result.results)) if switches.json else result)
    folder = Path(result.output)
    print(f"-> {folder / TABLES}, {folder / RESULTS}, {folder / BY_ROUND}", file=sys.stderr)
    return EXIT_ALL if result.all_learnt else EXIT_SOME_WITHOUT


@contextmanager
def _shown() -> Iterator[Audience]:
    """Stages in words, and a bar for what takes long, on standard error."""
    from prill.refine.training.trainer import Progress
    from prill.refine.training.weights import silence_libraries

    bars: dict[str, tqdm[NoReturn]] = {}

    def bar_of(name: str, total: int | None) -> tqdm[NoReturn]:
        if name not in bars:
            close()
            bars[name] = progress_bar(total=total, desc=name, dynamic_ncols=True, file=sys.stderr, delay=0.5)
        return bars[name]

    def close() -> None:
        for bar in bars.values():
            bar.close()
        bars.clear()

    def say(words: str) -> None:
        close()
        print(words, file=sys.stderr)

    def judged(tally: Tally) -> None:
        bar = bar_of("judging", None)
        bar.update(tally.made + tally.skipped - bar.n)

    def read(phase: str, done: int, total: int) -> None:
        bar = bar_of(phase, total)
        bar.update(done - bar.n)

    def trained(now: Progress) -> None:
        bar = bar_of("training", now.steps)
        bar.set_postfix_str("" if now.loss is None else f"loss {now.loss:.3f}", refresh=False)
        bar.update(now.step - bar.n)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what goes wrong is an error
        silence_libraries()
        try:
            yield Audience(say, judged, read, trained)
        finally:
            close()


def watch(config: WatchConfig, switches: Switches) -> int:
    """`prill watch`; 0 without an alarm, 1 with one at the end of a log, 3 where lines could not be read."""
    with progress_bar(unit=" lines", disable=None, leave=False) as bar:

        def show(log: str) -> None:
            bar.set_description(log, refresh=False)
            bar.update()

        result = run_watch(config, progress=show)
    say_problems("watch", result.problems)
    out = words_beside(config.output) if config.output and is_stdout(config.output) else sys.stdout
    print(json.dumps(result.table()) if switches.json else result, file=out)
    if result.alarms:
        return EXIT_ALARM
    return EXIT_SOME_WITHOUT if result.problems else EXIT_ALL
