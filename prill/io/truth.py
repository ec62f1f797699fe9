"""Determines the true outcome of a trajectory from the labels of several annotators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta

from prill.errors import UsageError
from prill.types import LabelRecord

# Descriptions of the rules. A tie of the majority is undecided; `first` depends on the order of the
# lines. Any other rule is the name of an annotator.
RULES = {
    "majority": "the majority of the annotators who decided; a tie is undecided",
    "unanimous": "what all annotators who decided agree on",
    "first": "the first decided label in the file",
}
# As options of runs that read labels.
SourceOption = Annotated[
    str | None,
    Meta(description="Label source to use if there are several, for example human or oracle."),
]
TruthOption = Annotated[
    str,
    Meta(
        min_length=1,
        description="Rule for several annotators: majority (default; a tie is undecided), "
        "unanimous, first (first line of the file), or the NAME of the one annotator whose "
        "labels count.",
    ),
]
_MAX_NAMES = 20


def gold_labels(
    labels: Iterable[LabelRecord], source: str | None = None, truth: str = "majority"
) -> tuple[str, dict[str, bool | None]]:
    """Decides one label for each id.

    Args:
        labels: Labels of any number of annotators.
        source: The source of labels to use. Labels of people and oracles are never mixed. None: the
            only source.
        truth: `"majority"`, `"unanimous"`, `"first"`, or the name of the one annotator whose labels
            count.

    Returns:
        The source, and the success of each id; None if it is undecided.

    Raises:
        UsageError: There are several sources and `source` is None, or no annotator has that name.
    """
    source, by_id = collect_labels(labels, source, truth)
    return source, {id: decide_truth(records, truth) for id, records in by_id.items()}


def collect_labels(
    labels: Iterable[LabelRecord], source: str | None = None, truth: str = "majority"
) -> tuple[str, dict[str, list[LabelRecord]]]:
    """Returns the source, and for each id all its labels of that source, in order.

    Raises UsageError like `gold_labels`.
    """
    records = list(labels)
    sources = sorted({record.source for record in records})
    if source is None:
        if len(sources) > 1:
            raise UsageError(
                f"the labels come from several sources ({', '.join(sources)}); choose one source",
                parameters=("source",),
            )
        source = sources[0] if sources else ""
    elif source not in sources:
        raise UsageError(
            f"no label has source {source!r}; expected one of {', '.join(sources) or 'none'}"
        )
    by_id: dict[str, list[LabelRecord]] = {}
    for record in records:
        if record.source == source:
            by_id.setdefault(record.id, []).append(record)
    if truth not in RULES:
        _refuse_stranger(truth, source, by_id)
    return source, by_id


def decide_truth(records: Iterable[LabelRecord], truth: str = "majority") -> bool | None:
    """Applies a rule to the labels of one trajectory; None if the result is undecided."""
    records = list(records)
    if truth == "first":
        return next((record.success for record in records if record.success is not None), None)
    votes = collect_votes(records)
    if truth not in RULES:
        return votes.get(truth)
    successes = sum(votes.values())
    failures = len(votes) - successes
    if successes == failures or (truth == "unanimous" and successes and failures):
        return None
    return successes > failures


def why_undecided(records: Sequence[LabelRecord], truth: str = "majority") -> str:
    """Returns why `decide_truth` gives None: tie, not unanimous, or an undecided annotator's
    reason.
    """
    if truth not in RULES:
        records = [record for record in records if record.annotator == truth]
        if not records:
            return "labelled only by others"
    elif collect_votes(records):
        return "tie" if truth == "majority" else "not unanimous"
    # The minimum makes the result independent of the order of the lines.
    return min(
        (record.undecided for record in records if record.undecided), default="no reason given"
    )


def collect_votes(records: Iterable[LabelRecord]) -> dict[str, bool]:
    """Returns the decision of each annotator of a trajectory.

    Labels without a name count as different annotators. An annotator who gave both success and
    failure has no decision.
    """
    votes: dict[str, set[bool]] = {}
    for i, record in enumerate(records):
        if record.success is not None:
            # Names in a file cannot contain a null character, so generated names never collide with
            # real ones.
            votes.setdefault(record.annotator or f"\0{i}", set()).add(record.success)
    return {name: True in successes for name, successes in votes.items() if len(successes) == 1}


def _refuse_stranger(name: str, source: str, by_id: dict[str, list[LabelRecord]]) -> None:
    names = sorted(
        {record.annotator for records in by_id.values() for record in records if record.annotator}
    )
    if name not in names:
        more = "" if len(names) <= _MAX_NAMES else f" and {len(names) - _MAX_NAMES} more"
        raise UsageError(
            f"truth {name!r} is neither a rule ({', '.join(RULES)}) nor an annotator of "
            f"source {source!r}; annotators: "
            f"{', '.join(names[:_MAX_NAMES]) or 'none with a name'}{more}",
            parameters=("truth",),
        )
