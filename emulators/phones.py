"""Assignment of devices to workers, shared by the phone environments."""

from __future__ import annotations

from collections.abc import Sequence

from prill.errors import UsageError


def join_devices(named: str | Sequence[str] | None) -> str | None:
    """Joins several devices into one text with commas."""
    return (
        ",".join(named)
        if isinstance(named, list | tuple)
        else None
        if named is None
        else str(named)
    )


def one_a_worker(workers: int | None, named: str | None, option: str) -> list[str | None]:
    """Returns one named device per worker; None stands for the only device. Raises UsageError if
    there are too few.
    """
    names: list[str | None] = [name.strip() for name in named.split(",")] if named else [None]
    if workers and workers > len(names):
        raise UsageError(
            f"workers {workers}: every worker needs a device of its own; give as many devices",
            parameters=(option, "workers"),
        )
    if len(set(names)) < len(names):
        raise UsageError(f"{option} {named}: the same device is listed twice", parameters=(option,))
    return names[:workers]
