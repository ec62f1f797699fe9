"""Graceful interruption of long runs: calls in flight finish, and the same command resumes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def stop_on_ctrl_c(command: str, stop: asyncio.Event) -> Iterator[None]:
    """Sets `stop` on the first Ctrl-C (or TERM), so that calls in flight finish.

    The second one drops them.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def interrupt() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
            return
        stop.set()
        print(
            "\n"
            f"prill {command}: finishing the calls in progress; press Ctrl-C again to "
            "cancel them",
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
