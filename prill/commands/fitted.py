"""What to say of the fitted judges in an evaluator: what they were fitted on, and which sites they do not know."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prill.protocols import Evaluator

if TYPE_CHECKING:
    from prill.evaluators.fitted.student import Student


_SITES = 5


def students(judge: Evaluator) -> Iterator[Student]:
    """The fitted judges in an evaluator, however deep inside others they are."""
    from prill.evaluators.fitted.student import Student

    if isinstance(judge, Student):
        yield judge
    inside = (getattr(judge, name, None) for name in ("judge", "evaluator"))
    for part in (*(one for one in inside if one is not None), *getattr(judge, "judges", ())):
        yield from students(part)


def fitted_on(judge: Evaluator, paths: Sequence[str]) -> list[str]:
    """A caution for each file that a judge was fitted on: figures from it flatter the judge."""
    fitted = list(students(judge))
    digests = {path: sha256_of(path) for path in paths} if fitted else {}
    return [
        f"{path} is what this {student.info.name} was fitted on: figures from it will flatter the judge"
        for student in fitted
        for path, digest in digests.items()
        if digest in student.model.card.data
    ]


def strangers(judge: Evaluator) -> list[str]:
    """A caution for each judge that met sites it does not know."""
    return [_unknown(student.info.name, student.strangers) for student in students(judge) if student.strangers]


def _unknown(name: str, sites: Counter[str]) -> str:
    # Names come from files of others: no control sequence of theirs reaches the terminal.
    shown = ["".join(c if c.isprintable() else "?" for c in site) + f" {count}" for site, count in sites.most_common(_SITES)]
    if len(sites) > _SITES:
        shown.append(f"{len(sites) - _SITES} more")
    runs = f"{sites.total()} runs are" if sites.total() > 1 else "1 run is"
    return f"{runs} of sites that this {name} was not fitted on ({', '.join(shown)}): its card has the figures for other sites"


def sha256_of(path: str) -> str:
    """The SHA-256 of a file, as cards name their data."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
