"""Clean interruption of long runs: calls under way finish, and the same command resumes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def stopping_on_ctrl_c(command: str, stop: asyncio.Event) -> Iterator[None]:
    """First Ctrl-C (or TERM): sets `stop`, so that what is under way is finished. Second: gives
    that up too.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def interrupt() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
            return
        stop.set()
        print(
            f"\nprill {command}: finishing the calls under way; press Ctrl-C again to drop them",
            file=sys.stderr,
        )

    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
