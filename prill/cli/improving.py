"""How the commands that make agents better, or look after their rewards, show what they do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from prill.cli.derive import Switches
from prill.cli.showing import progress_bar, say_problems
from prill.files.outputs import is_stdout, words_beside
from prill.refine.export import figures
from prill.refine.report import summary_lines, true_precision
from prill.refine.training.preflight import Preflight
from prill.refine.training.spec import OF_PAGES, TrainSpec
from prill.refine.training.trainer import Progress
from prill.runs.filter import FilterConfig, FilterResult
from prill.runs.filter import filter as run_filter
from prill.runs.train import TrainConfig, plan_train
from prill.runs.train import train as run_train
from prill.runs.watch import WatchConfig
from prill.runs.watch import watch as run_watch
from prill.store import encode
from prill.tables import printable

if TYPE_CHECKING:
    from tqdm import tqdm

_EXIT_QUIET, _EXIT_ALARM, _EXIT_SOME, _EXIT_INTERRUPTED = 0, 1, 3, 130
_EXIT_ALL = _EXIT_QUIET
_MAX_PROBLEMS = 10


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
        return _EXIT_ALARM
    return _EXIT_SOME if result.problems else _EXIT_QUIET


def filter(config: FilterConfig, switches: Switches) -> int:
    """`prill filter`; 3 where broken lines or images cost rows."""
    with phases_shown() as bar_of:

        def progress(phase: str, done: int, total: int) -> None:
            bar = bar_of(phase, total)
            bar.update(done - bar.n)

        result = run_filter(config, progress=progress)
    _tell_filtered(result, as_json=switches.json)
    for words in (*result.cautions, *_shortened([*result.broken, *result.exported.problems])):
        print(f"prill filter: {printable(words)}", file=sys.stderr)
    images = any(why == "missing or broken image" for why in result.exported.lost)
    return _EXIT_SOME if result.broken or images else _EXIT_ALL


def _tell_filtered(result: FilterResult, *, as_json: bool) -> None:
    exported, filtered = result.exported, result.filtered
    if as_json:
        right = true_precision(filtered, result.truth) if result.truth is not None else None
        labelled = {} if right is None else {"labelled": right[1], "truly_successful": right[0], "fitted": result.fitted}
        print(encode({"output": result.output, "rows": exported.rows, **figures(filtered), **labelled}).decode().rstrip())
        return
    for line in summary_lines(filtered, result.truth):
        print(line)
    for why, count in sorted(figures(filtered)["steps_lost"].items(), key=lambda item: (-item[1], item[0])):
        print(f"  lost {count:>6,}  {why}")
    if filtered.elsewhere:
        print(f"{filtered.elsewhere:,} verdicts are of other trajectories", file=sys.stderr)
    print(str(result).splitlines()[-1], file=sys.stderr)


def _shortened(problems: Sequence[str]) -> Iterator[str]:
    yield from problems[:_MAX_PROBLEMS]
    if len(problems) > _MAX_PROBLEMS:
        yield f"… and {len(problems) - _MAX_PROBLEMS} more"


@contextmanager
def phases_shown(*, disable: bool = False) -> Iterator[Callable[[str, int], tqdm[NoReturn]]]:
    """The bar of a phase and its total, on standard error; one at a time."""
    shown: dict[str, tqdm[NoReturn]] = {}

    def bar_of(phase: str, total: int) -> tqdm[NoReturn]:
        if phase not in shown:
            for bar in shown.values():
                bar.close()
            shown[phase] = progress_bar(
                total=total or None, desc=phase, dynamic_ncols=True, file=sys.stderr, delay=0.5, disable=disable
            )
        return shown[phase]

    try:
        yield bar_of
    finally:
        for bar in shown.values():
            bar.close()


def train(config: TrainConfig, switches: Switches) -> int:
    """`prill train …`; 130 where Ctrl-C ended it with a checkpoint."""
    facts = None
    with _quiet_libraries(), phases_shown(disable=not _is_first()) as bar_of:

        def say(phase: str, done: int, total: int) -> None:
            bar = bar_of(phase, total)
            bar.update(done - bar.n)

        def progress(now: Progress) -> None:
            bar = bar_of("steps", now.steps)
            if not bar.n:
                bar.initial = now.step - 1  # the rate counts what this run does
                bar.n = now.step - 1
            bar.set_postfix_str("" if now.loss is None else f"loss {now.loss:.4f}", refresh=False)
            bar.update(now.step - bar.n)

        if switches.dry_run:
            facts = plan_train(config, say=say)
        else:
            try:
                result = run_train(config, progress=progress, say=say)
            except KeyboardInterrupt as stop:
                said = stop or "stopped at once; the same command goes on from the last checkpoint"
                print(f"\nprill train: {said}", file=sys.stderr)
                return _EXIT_INTERRUPTED
    if not _is_first():
        return _EXIT_ALL
    if facts is not None:
        print(json.dumps(asdict(facts)) if switches.json else _in_words(facts, config.spec()))
    else:
        print(result, file=sys.stderr)
    return _EXIT_ALL


def _in_words(facts: Preflight, spec: TrainSpec) -> str:
    """What is known beforehand, for people."""
    limit = "no limit known" if facts.limit is None else f"limit {facts.limit:,}"
    left_out = f", {facts.overlong:,} too long and left out" if facts.overlong else ""
    at_once = f"{facts.accumulation} x {facts.micro_batch} on each of {facts.processes}"
    of_model = f"{facts.parameters / 1e6:,.1f} M parameters, {facts.trained / 1e6:,.2f} M trained ({spec.method})"
    answers, each = f"answers of up to {facts.answer_tokens:,}", f"a checkpoint has {_size(facts.checkpoint)}"
    lines = {
        "rows": f"{facts.learnt:,} to learn from, {facts.held_out:,} kept apart{left_out}",
        **({} if spec.trains in OF_PAGES else {"pictures": f"{facts.pictures:,}, all readable"}),
        "tokens": f"{facts.mean_tokens:,.0f} a row, at most {facts.longest:,} ({limit}); {answers}",
        "model": f"{spec.model}: {of_model}",
        "steps": f"{facts.steps:,} of {spec.batch} rows ({at_once}), {facts.epochs:.1f} times each row",
        "memory": f"about {_size(facts.memory)} on each device",
        "disk": f"about {_size(facts.disk_needed)}, of {_size(facts.disk_free)} free; {each}",
        "work": f"{facts.flops:.2e} floating point operations a step; {_time(facts)}",
    }
    return "\n".join(f"{name:<9}{words}" for name, words in lines.items())


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _time(facts: Preflight) -> str:
    if facts.seconds is None:
        return f"the time on {facts.device} is not known"
    hours, minutes = divmod(round(facts.seconds / 60), 60)
    time = f"{hours} h {minutes:02} min" if hours else f"{minutes} min" if minutes else "less than a minute"
    return f"roughly {time} on {facts.device}"


def _is_first() -> bool:
    """Whether this is the process that speaks, of those that `accelerate launch` started."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Without the bars and notices of the libraries below; what goes wrong is an error."""
    import warnings

    from prill.refine.training.weights import silence_libraries

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        silence_libraries()
        # Threads that wait actively for each other crawl where something else wants a core. Read when torch is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        yield
