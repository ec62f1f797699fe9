"""Presents the results of commands that measure how reliable judges are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from prill.cli.layout import EXIT_ALL, EXIT_SOME, Switches, say
from prill.cli.showing import print_result, progress_bar, run_async, show_plan, stoppable
from prill.evaluators.fitted.overlap import fitted_caution
from prill.runs.trust import agree as agreeing
from prill.runs.trust import fitting
from prill.runs.trust.agree import AgreeConfig
from prill.runs.trust.best import BestConfig, BestResult, best_async, plan_best
from prill.runs.trust.compare import CompareConfig
from prill.runs.trust.compare import compare as compare_runs
from prill.runs.trust.failures import FailuresConfig
from prill.runs.trust.failures import failures as find_failures
from prill.runs.trust.fitting import CalibrateConfig, FitConfig
from prill.runs.trust.protocols import (
    ProtocolsConfig,
    ProtocolsResult,
    compare_protocols_async,
    plan_protocols,
)
from prill.runs.trust.rate import RateConfig
from prill.runs.trust.rate import rate as estimate_rate
from prill.runs.trust.redteam import RedteamConfig, plan_redteam, redteam_async

if TYPE_CHECKING:
    from tqdm import tqdm

EXIT_SHIFTED = 1
_EXIT_DECISION = {None: 0, "pass": 0, "fail": 1, "inconclusive": 6}


def agree(config: AgreeConfig, switches: Switches) -> int:
    """Runs `prill agree`; returns 0."""
    result = agreeing.agree(config)
    print_result(result, result.to_dict, switches, config.disagreements, config.suspects)
    return EXIT_ALL


def rate(config: RateConfig, switches: Switches) -> int:
    """Runs `prill rate`; returns 0."""
    result = estimate_rate(config)
    print_result(result, result.to_dict, switches, config.plot)
    return EXIT_ALL


def best(config: BestConfig, switches: Switches) -> int:
    """Runs `prill best`; returns 0, 3 if compared tasks are unscored, 130 if interrupted."""
    if switches.dry_run:
        return show_plan("best", plan_best(config), as_json=switches.json)
    result = run_async(_best(config))
    print_result(result, result.to_dict, switches, config.output, config.plot)
    if result.stopped:
        raise KeyboardInterrupt
    return EXIT_SOME if result.unscored else EXIT_ALL


async def _best(config: BestConfig) -> BestResult:
    if config.compare is None:
        return await best_async(config)
    with stoppable("best", unit="task") as (stop, bar):

        def show(done: int, expected: int) -> None:
            bar.total, bar.n = expected, done
            bar.update(0)

        return await best_async(config, stop=stop, progress=show)


def protocols(config: ProtocolsConfig, switches: Switches) -> int:
    """Runs `prill protocols`; returns 0, 3 if verdicts are unscored, 130 if interrupted."""
    if switches.dry_run:
        return show_plan("protocols", plan_protocols(config), as_json=switches.json)
    result = run_async(_protocols(config))
    print_result(result, result.to_dict, switches)
    if result.stopped:
        raise KeyboardInterrupt
    return EXIT_SOME if result.unscored else EXIT_ALL


async def _protocols(config: ProtocolsConfig) -> ProtocolsResult:
    with stoppable("protocols", unit="verdict") as (stop, bar):
        return await compare_protocols_async(config, stop=stop, progress=_by_name(bar))


def _by_name(bar: tqdm[NoReturn]) -> Callable[[str, int, int], None]:
    """Returns a callback that shows the name of what is judged, and the count, on the bar."""

    def show(name: str, done: int, expected: int) -> None:
        bar.total, bar.n = expected, done
        bar.set_postfix_str(name, refresh=False)
        bar.update(0)

    return show


def failures(config: FailuresConfig, switches: Switches) -> int:
    """Runs `prill failures`; returns 0."""
    result = find_failures(config)
    print_result(result, result.to_dict, switches)
    return EXIT_ALL


def compare(config: CompareConfig, switches: Switches) -> int:
    """Runs `prill compare`.

    With a requirement, returns 0 if B meets it, 1 if not, 6 if it is inconclusive.
    """
    result = compare_runs(config)
    print_result(result, result.to_dict, switches, config.junit, config.markdown, config.plot)
    return _EXIT_DECISION[result.decision]


def fit(config: FitConfig, switches: Switches) -> int:
    """Runs `prill fit`; returns 0 if all was read, 3 if some lines are broken."""
    result = fitting.fit(config)
    card = result.stack.card if result.stack else result.model.card
    outputs = (config.output, config.out_of_fold, config.learning_curve)
    print_result(result, lambda: card, switches, *outputs)
    return EXIT_SOME if result.broken else EXIT_ALL


def calibrate(config: CalibrateConfig, switches: Switches) -> int:
    """Runs `prill calibrate`; returns 0."""
    result = fitting.calibrate(config)
    print_result(result, lambda: result.figures, switches, config.output, config.plot)
    if switches.json and (
        caution := fitted_caution(result.calibration.evaluator.name, result.figures.fitted)
    ):
        say(f"prill calibrate: {caution}")
    return EXIT_ALL


def redteam(config: RedteamConfig, switches: Switches) -> int:
    """Runs `prill redteam`.

    Returns 0, 1 if an attack exceeds the limit, 3 if verdicts are unscored, 130 if interrupted.
    """
    if switches.dry_run:
        return show_plan("redteam", plan_redteam(config), as_json=switches.json)
    with progress_bar(unit="verdict") as bar:
        result = asyncio.run(redteam_async(config, progress=_by_name(bar)))
    print_result(result, lambda: result.figures, switches)
    if result.too_far is not None:
        say(
            f"prill redteam: {result.too_far} moves this judge by more than {config.max_shift:g} "
            "points"
        )
        return EXIT_SHIFTED
    return EXIT_SOME if result.unscored else EXIT_ALL
