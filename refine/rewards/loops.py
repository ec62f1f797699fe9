"""Runs async code for frameworks that call synchronously, in one background event loop."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from prill.errors import UsageError

_T = TypeVar("_T")


def run_blocking(work: Coroutine[Any, Any, _T]) -> _T:
    """Runs a coroutine from any thread, whether or not an event loop runs there. Connections stay
    open between calls.

    This blocks an event loop of the calling thread; async code should await instead. An interrupt
    cancels the coroutine.

    Raises:
        UsageError: The function is called from its own event loop, which would be a deadlock.
    """
    own = _thread()
    if threading.current_thread() is own.thread:
        work.close()
        raise UsageError("blocking call inside a blocking call; await it instead")
    future = asyncio.run_coroutine_threadsafe(work, own.loop)
    try:
        return future.result()
    finally:
        future.cancel()  # after an interrupt; no effect if the coroutine has finished


class LoopThread:
    """An event loop in a thread; when it or the process ends, its connections are closed."""

    def __init__(self, name: str) -> None:
        ready = threading.Event()

        def run() -> None:
            try:
                # closing the runner cancels all tasks and closes async generators
                with asyncio.Runner() as runner:
                    self.loop = runner.get_loop()
                    ready.set()
                    self.loop.run_forever()
            except RuntimeError:
                # At exit, Python 3.12 starts no thread, as the runner does at last, to wait for
                # those of `to_thread`. They have ended by then.
                if threading.main_thread().is_alive():
                    raise

        self.thread = threading.Thread(target=run, name=name, daemon=True)
        self.thread.start()
        ready.wait()
        self._owner = os.getpid()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stops the loop and cancels its tasks; safe to call twice."""
        atexit.unregister(self.stop)
        if os.getpid() == self._owner and self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(10)


_lock = threading.Lock()
_running: LoopThread | None = None


def _thread() -> LoopThread:
    global _running
    with _lock:
        if _running is None:
            _running = LoopThread("prill-rewards")
        return _running


def _begin_again() -> None:
    """Resets the state in a forked child, which does not have the parent's thread."""
    global _lock, _running
    _lock, _running = threading.Lock(), None


os.register_at_fork(after_in_child=_begin_again)
