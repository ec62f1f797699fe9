"""The page of prill annotate, made from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from prill.evaluators.ask import Question
from prill.io.store import encode
from prill.types import LabelRecord, Verdict
from prill.ui.view.label_log import LabelLog
from prill.ui.view.library import Library
from prill.ui.view.queue import Order, keep_queue
from prill.ui.view.session import LabelSession
from prill.ui.view.site import Reveal, ViewSite

NAMES = ("verdicts", "earlier")


def read_library(paths: Iterable[Path], verdicts: Iterable[Path] = ()) -> Library:
    """A library that was read to the end."""
    library = Library(list(paths), list(verdicts))
    for _ in library.refresh():
        pass
    return library


@contextmanager
def labelling(
    trajectories: Path,
    labels: Path,
    annotator: str = "me",
    *,
    earlier: Iterable[LabelRecord] = (),
    others: Iterable[Path] = (),
    verdicts: Iterable[Verdict] = (),
    reveal: Reveal = "after",
    order: Order = "file",
    limit: int | None = None,
    scores: dict[str, float | None] | None = None,
    questions: Iterable[Question] = (),
) -> Iterator[ViewSite]:
    """The page of one annotator, with labels and verdicts of others in files next to the labels."""
    for name, records in zip(NAMES, (verdicts, earlier), strict=True):
        path = labels.with_name(f"{labels.stem}.{name}.jsonl")
        path.write_bytes(b"".join(map(encode, records)))
    said, people = (labels.with_name(f"{labels.stem}.{name}.jsonl") for name in NAMES)
    with (
        closing(read_library([trajectories], [said])) as library,
        LabelLog(labels, annotator) as log,
    ):
        inclusion = keep_queue(library, order=order, limit=limit, scores=scores)
        library.begin_labels(log, [people, *others])
        session = LabelSession(library, log, questions=tuple(questions), inclusion=inclusion)
        yield ViewSite(library, session, reveal=reveal, title="prill annotate")
