"""Presents the results of commands that measure how reliable judges are."""

from __future__ import annotations

import asyncio
import sys

from prill.cli.layout import Switches
from prill.cli.showing import progress_bar, run_or_drop, show_plan, stop_on_ctrl_c
from prill.evaluators.fitted.overlap import fitted_caution
from prill.io.outputs import message_stream
from prill.io.store import encode
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

EXIT_ALL, EXIT_SHIFTED, EXIT_SOME, EXIT_INTERRUPTED = 0, 1, 3, 130
_EXIT_DECISION = {None: 0, "pass": 0, "fail": 1, "inconclusive": 6}


def agree(config: AgreeConfig, switches: Switches) -> int:
    """Runs `prill agree`; returns 0."""
    result = agreeing.agree(config)
    print(
        encode(result.to_dict()).decode().rstrip() if switches.json else result,
        file=message_stream(config.disagreements, config.suspects),
    )
    return EXIT_ALL


def rate(config: RateConfig, switches: Switches) -> int:
    """Runs `prill rate`; returns 0."""
    result = estimate_rate(config)
    print(
        encode(result.to_dict()).decode().rstrip() if switches.json else result,
        file=message_stream(config.plot),
    )
    return EXIT_ALL


def best(config: BestConfig, switches: Switches) -> int:
    """Runs `prill best`; returns 0, 3 if compared tasks are unscored, 130 if interrupted."""
    if switches.dry_run:
        return show_plan("best", plan_best(config), as_json=switches.json)
    if (result := run_or_drop("best", _best(config))) is None:
        return EXIT_INTERRUPTED
    print(
        encode(result.to_dict()).decode().rstrip() if switches.json else result,
        file=message_stream(config.output, config.plot),
    )
    if result.stopped:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_SOME if result.unscored else EXIT_ALL


async def _best(config: BestConfig) -> BestResult:
    if config.compare is None:
        return await best_async(config)
    stop = asyncio.Event()
    with stop_on_ctrl_c("best", stop), progress_bar(unit="task") as bar:

        def show(done: int, expected: int) -> None:
            bar.total, bar.n = expected, done
            bar.update(0)

        return await best_async(config, stop=stop, progress=show)


def protocols(config: ProtocolsConfig, switches: Switches) -> int:
    """Runs `prill protocols`; returns 0, 3 if verdicts are unscored, 130 if interrupted."""
    if switches.dry_run:
        return show_plan("protocols", plan_protocols(config), as_json=switches.json)
    if (result := run_or_drop("protocols", _protocols(config))) is None:
        return EXIT_INTERRUPTED
    print(encode(result.to_dict()).decode().rstrip() if switches.json else result)
    if result.stopped:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_SOME if result.unscored else EXIT_ALL


async def _protocols(config: ProtocolsConfig) -> ProtocolsResult:
    stop = asyncio.Event()
    with (
        stop_on_ctrl_c("protocols", stop),
        progress_bar(unit="verdict") as bar,
    ):

        def show(protocol: str, done: int, expected: int) -> None:
            bar.total, bar.n = expected, done
            bar.set_postfix_str(protocol, refresh=False)
            bar.update(0)

        return await compare_protocols_async(config, stop=stop, progress=show)


def failures(config: FailuresConfig, switches: Switches) -> int:
    """Runs `prill failures`; returns 0."""
    result = find_failures(config)
    print(encode(result.to_dict()).decode().rstrip() if switches.json else result)
    return EXIT_ALL


def compare(config: CompareConfig, switches: Switches) -> int:
    """Runs `prill compare`.

    With a requirement, returns 0 if B meets it, 1 if not, 6 if it is inconclusive.
    """
    result = compare_runs(config)
    print(
        encode(result.to_dict()).decode().rstrip() if switches.json else result,
        file=message_stream(config.junit, config.markdown, config.plot),
    )
    return _EXIT_DECISION[result.decision]


def fit(config: FitConfig, switches: Switches) -> int:
    """Runs `prill fit`; returns 0 if all was read, 3 if some lines are broken."""
    result = fitting.fit(config)
    messages = message_stream(config.output, config.out_of_fold, config.learning_curve)
    card = result.stack.card if result.stack else result.model.card
    print(encode(card).decode().rstrip() if switches.json else result, file=messages)
    return EXIT_SOME if result.broken else EXIT_ALL


def calibrate(config: CalibrateConfig, switches: Switches) -> int:
    """Runs `prill calibrate`; returns 0."""
    result = fitting.calibrate(config)
    messages = message_stream(config.output, config.plot)
    print(encode(result.figures).decode().rstrip() if switches.json else result, file=messages)
    if switches.json and (
        caution := fitted_caution(result.calibration.evaluator.name, result.figures.fitted)
    ):
        print(f"prill calibrate: {caution}", file=sys.stderr)
    return EXIT_ALL


def redteam(config: RedteamConfig, switches: Switches) -> int:
    """Runs `prill redteam`.

    Returns 0, 1 if an attack exceeds the limit, 3 if verdicts are unscored, 130 if interrupted.
    """
    if switches.dry_run:
        return show_plan("redteam", plan_redteam(config), as_json=switches.json)
    try:
        with progress_bar(unit="verdict") as bar:

            def show(attack: str, done: int, expected: int) -> None:
                bar.total, bar.n = expected, done
                bar.set_postfix_str(attack, refresh=False)
                bar.update(0)

            result = asyncio.run(redteam_async(config, progress=show))
    except KeyboardInterrupt:
        print(
            "prill redteam: interrupted; run the same command again to resume",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    print(encode(result.figures).decode().rstrip() if switches.json else result)
    if result.too_far is not None:
        print(
            f"prill redteam: {result.too_far} moves this judge by more than {config.max_shift:g} "
            "points",
            file=sys.stderr,
        )
        return EXIT_SHIFTED
    return EXIT_SOME if result.unscored else EXIT_ALL
