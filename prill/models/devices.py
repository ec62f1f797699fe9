"""Manages accelerators used by this process: vLLM servers and loaded weights share a device.

A holder of device memory registers itself (`hold`), releases the memory when `free` is called, and
allocates it again on its next use. `free_devices` ends a stage, so that the next stage finds the
device empty. Models that are used at the same time must fit on the device together; this is checked
when they are created (`used_together`).
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


class DeviceUser(Protocol):
    """An object that occupies device memory while in use."""

    def free(self) -> None:
        """Releases the memory and waits for it. Safe to call twice; the next use allocates it
        again.
        """
        ...


class GpuServer(Protocol):
    """A server that uses a fraction of a device's memory; None: as much as it finds."""

    @property
    def name(self) -> str:
        """Returns the model's name."""
        ...

    @property
    def share(self) -> float | None:
        """Returns the fraction of the device's memory, if one was given."""
        ...


_users: weakref.WeakSet[DeviceUser] = weakref.WeakSet()
_made: ContextVar[list[GpuServer] | None] = ContextVar("prill_servers_made", default=None)


def register_user(user: DeviceUser) -> None:
    """Registers an object to be freed by `free_devices`, as long as it exists."""
    _users.add(user)


def free_devices() -> None:
    """Stops every server and frees all weights of this process, including torch's cache.

    Call it at the end of a stage: calls that are still waiting get an error.
    """
    users = list(_users)
    for user in users:
        user.free()
    # If torch was never imported, it holds no memory.
    torch = sys.modules.get("torch")
    if users or torch is not None:
        gc.collect()  # models contain reference cycles
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def fit_together(servers: Sequence[GpuServer]) -> bool:
    """Returns whether the servers fit on one device: there is only one, or their fractions sum to
    less than 1.
    """
    shares = [server.share for server in servers]
    return len(servers) < 2 or (
        None not in shares and sum(share for share in shares if share is not None) < 1.0
    )


def expect_room(servers: Sequence[GpuServer]) -> None:
    """Raises UsageError if servers that are used at the same time do not fit on one device."""
    if not fit_together(servers):
        given = ", ".join(
            (f"{s.name} ({'no fraction given' if s.share is None else f'{s.share:g}'})")
            for s in servers
        )
        raise UsageError(
            f"vLLM would have to serve {len(servers)} models at the same time, and each "
            f"takes nearly all GPU memory: {given}. Give each a fraction, in total less "
            "than 1 (gpu-memory-utilization in serve_options); or run them one after the "
            "other (for example `prill caption` first); or start one yourself on another "
            "GPU (vllm serve), and give its base_url",
            parameters=("serve_options",),
        )


def register_server(server: GpuServer) -> None:
    """Adds a server to the enclosing `used_together` block, if any.

    Raises UsageError as `expect_room`.
    """
    made = _made.get()
    if made is not None and all(server is not other for other in made):
        made.append(server)
        expect_room(made)


@contextmanager
def used_together() -> Iterator[None]:
    """Declares that the models created inside, and in enclosing blocks, are used at the same time.

    Raises UsageError when a model is created that does not fit on the device.
    """
    if _made.get() is not None:
        yield
        return
    token = _made.set([])
    try:
        yield
    finally:
        _made.reset(token)
