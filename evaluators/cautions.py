"""Warnings about the judges after a run: training data, unfamiliar sites, unsupported model
options.
"""

from __future__ import annotations

from collections import Counter

from prill.evaluators.combine import Cascade
from prill.evaluators.fitted.overlap import Overlap, fitted_caution
from prill.evaluators.fitted.student import Student
from prill.evaluators.judge import PageJudge
from prill.evaluators.scoring.scorer import Tally
from prill.io.faults import guess
from prill.io.tables import printable
from prill.protocols import Composite, Evaluator, every_judge

_SITES = _KEYS = 5


def fitted_on(judge: Evaluator, tally: Tally) -> list[str]:
    """Returns a warning if the judge was fitted on some of these runs, which makes results
    optimistic.
    """
    caution = fitted_caution(judge.info.name, Overlap(**tally.fitted)) if tally.fitted else None
    return [caution] if caution else []


def strangers(judge: Evaluator) -> list[str]:
    """Returns a warning for each judge that met sites it was not fitted on."""
    return [
        _unknown(part.info.name, part.strangers)
        for part in every_judge(judge)
        if isinstance(part, Student) and part.strangers
    ]


def unknown_keys(counts: Counter[str]) -> list[str]:
    """Returns a warning for trajectory keys that are unknown, such as misspelled ones."""
    if not counts:
        return []
    names = [
        f"`{printable(key)}`{f' {count} times' * (count > 1)}{guess(key)}"
        for key, count in counts.most_common(_KEYS)
    ]
    if len(counts) > _KEYS:
        names.append(f"and {len(counts) - _KEYS} more")
    keys = "1 unknown key" if len(counts) == 1 else f"{len(counts)} unknown keys"
    seen = "kept as metadata, which judges do not see"
    return [f"{keys} in the trajectories; {seen}: {', '.join(names)}"]


def hard_scores(judge: Evaluator, tally: Tally) -> list[str]:
    """Returns a warning if every score is 0 or 1 although the judge reads probabilities."""
    reading = [
        part
        for part in every_judge(judge)
        if isinstance(part, PageJudge) and part.reads_probabilities
    ]
    if tally.soft or not tally.succeeded + tally.failed or not reading:
        return []
    can_state = any(
        "probability" in part.page.options and part.how["form"] == "thoughts" for part in reading
    )
    hint = "; try probability = stated" if can_state else ""
    return [
        f"all scores are 0 or 1: the model returns no log-probabilities, or is always certain{hint}"
    ]


def weaker_second(judge: Evaluator) -> list[str]:
    """Returns a warning for each cascade whose second judge agrees less with labels than its first.

    The agreement is read from the judges' cards.
    """
    cautions = []
    for cascade in (part for part in every_judge(judge) if isinstance(part, Cascade)):
        first, second = _kappa(cascade.first), _kappa(cascade.then)
        if first is not None and second is not None and second < first:
            cautions.append(
                "the second judge of this cascade agrees with labels less than the first "
                f"(kappa {second:.2f} against {first:.2f}): escalated trajectories get "
                "worse verdicts"
            )
    return cautions


def _kappa(judge: Evaluator) -> float | None:
    """Returns the agreement with labels on a fitted judge's card.

    The result is None for a judge without a card, or one composed of several judges.
    """
    alone = [part for part in every_judge(judge) if not isinstance(part, Composite)]
    return (
        alone[0].model.card.all_runs.kappa
        if len(alone) == 1 and isinstance(alone[0], Student)
        else None
    )


def _unknown(name: str, sites: Counter[str]) -> str:
    shown = [f"{printable(site)} {count}" for site, count in sites.most_common(_SITES)]
    if len(sites) > _SITES:
        shown.append(f"{len(sites) - _SITES} more")
    runs = f"{sites.total()} runs are" if sites.total() > 1 else "1 run is"
    return (
        f"{runs} from sites that this {name} was not fitted on ({', '.join(shown)}); its "
        "card reports its accuracy on new sites"
    )
