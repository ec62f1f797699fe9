"""Accelerators held by this process (vLLM servers, loaded weights), and taking turns on one.

A holder registers itself (`hold`), and gives back what it holds when it is told to (`free`); it
takes it again when it is asked something. `free_devices` ends a stage: what comes next finds the
card empty. Models that are asked at the same time have to fit together on it: that is checked where
they are made (`at_the_same_time`).
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from prill.errors import UsageError


class Holder(Protocol):
    """Something that holds memory of a device while it is in use."""

    def free(self) -> None:
        """Gives it back, and waits for that. Safe to call twice; the next use takes it again."""
        ...


class GpuServer(Protocol):
    """A server that takes a share of a card's memory; None: as much as it finds."""

    @property
    def name(self) -> str:
        """The model's."""
        ...

    @property
    def share(self) -> float | None:
        """Of the card's memory, where one was given."""
        ...


_holders: weakref.WeakSet[Holder] = weakref.WeakSet()
_made: ContextVar[list[GpuServer] | None] = ContextVar("prill_servers_made", default=None)


def hold(holder: Holder) -> None:
    """Registers a holder for as long as it lives."""
    _holders.add(holder)


def free_devices() -> None:
    """Ends every server and frees all weights that models of this process hold; torch gives its
    unused memory back.

    For the end of a stage: whoever waits for an answer meanwhile gets an error.
    """
    for holder in list(_holders):
        holder.free()
    gc.collect()  # models are in circles of references
    # Nothing of torch's can be held where it was never imported.
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def fit_together(servers: Sequence[GpuServer]) -> bool:
    """Whether one card has room for all of them: one alone, or each with a share that was given, in
    sum less than all.
    """
    shares = [server.share for server in servers]
    return len(servers) < 2 or (
        None not in shares and sum(share for share in shares if share is not None) < 1.0
    )


def expect_room(servers: Sequence[GpuServer]) -> None:
    """Raises UsageError when servers that are asked at the same time do not fit on one card
    together.
    """
    if not fit_together(servers):
        given = ", ".join(
            f"{s.name} ({'no share given' if s.share is None else f'{s.share:g}'})" for s in servers
        )
        raise UsageError(
            f"vLLM would have to serve {len(servers)} models at the same time, and each takes "
            "nearly all memory of the card: "
            f"{given}. Give each a share, in sum less than 1 (gpu-memory-utilization in "
            "serve_options); or let one of them "
            "work first (captions of prill caption, say); or start one by yourself on another "
            "card (vllm serve), by base_url",
            parameters=("serve_options",),
        )


def note_made(server: GpuServer) -> None:
    """Counts a server among those of the block `at_the_same_time`, where there is one. Raises
    UsageError as `expect_room`.
    """
    made = _made.get()
    if made is not None and all(server is not other for other in made):
        made.append(server)
        expect_room(made)


@contextmanager
def at_the_same_time() -> Iterator[None]:
    """The models that are made within it, and in a block around it, are asked at the same time.

    Raises UsageError as soon as one is made for which the card has no room.
    """
    if _made.get() is not None:
        yield
        return
    token = _made.set([])
    try:
        yield
    finally:
        _made.reset(token)
