"""Ends a process that does not shut down in time."""

from __future__ import annotations

import os
import threading


class LastResort:
    """Ends the process after a timeout, from a thread.

    It works even if a judge blocks the event loop, ignores its cancellation, or keeps a thread that
    the interpreter would wait for.
    """

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def exit_after(self, seconds: float, code: int = 1) -> None:
        """Ends the process with that exit code after a number of seconds, unless `stop` is called
        before.
        """
        threading.Thread(
            target=self._wait, args=(seconds, code), name="prill-last-resort", daemon=True
        ).start()

    def stop(self) -> None:
        """Cancels the timeout after a normal shutdown."""
        self._stopped.set()

    def _wait(self, seconds: float, code: int) -> None:
        if not self._stopped.wait(seconds):
            os.write(2, b"prill serve: something does not end; the process ends now\n")
            os._exit(code)
