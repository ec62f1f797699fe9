"""Child processes that judge shards.

    python -P -m prill.scoring

The first message to such a process is the function to run, which receives both pipe ends.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from prill.errors import PrillError
from prill.protocols import Work
from prill.scoring.shards import failed

MAX_LOSSES = 3  # processes that may die at one shard before the run fails

Task = Callable[[BinaryIO, BinaryIO], None]


class Child:
    """A child process in its own process group, which does not receive the terminal's Ctrl-C.

    It always ends with this process. Its output goes to `log`, by default to standard error.
    """

    def __init__(self, task: Task, log: IO[bytes] | None = None) -> None:
        # The child uses the same import path.
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        }
        command = [sys.executable, "-P", "-m", "prill.scoring"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            process_group=0,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout
        self.send(task)

    def send(self, message: object) -> None:
        """Sends a message. If the process has ended, `answer` reports it."""
        with suppress(BrokenPipeError):
            self._to.write(pickle.dumps(message))
            self._to.flush()

    def answer(self) -> Any:
        """Returns its next message, or None if it has ended."""
        return receive(self._from)

    def end(self, seconds: float = 0.0) -> int:
        """Ends the process and its descendants, and returns the exit code.

        If they do not end within `seconds`, they are killed.
        """
        with suppress(BrokenPipeError):
            self._to.close()
        if seconds:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        code = self.kill()
        self._from.close()
        return code

    def kill(self) -> int:
        """Kills the process and its descendants; returns the exit code."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()


def receive(end: IO[bytes]) -> Any:
    """Returns the next message, or None if the other end is closed."""
    try:
        return pickle.load(end)
    except (EOFError, pickle.UnpicklingError, OSError):
        return None


def send(end: IO[bytes], message: object) -> None:
    """Sends a message from a child process."""
    end.write(pickle.dumps(message))
    end.flush()


def end_with(other: IO[bytes], before: Callable[[], None] = lambda: None) -> threading.Thread:
    """Ends this process when the other end is closed."""

    def wait() -> None:
        other.read(1)
        before()
        os._exit(0)  # do not wait for running threads

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def main() -> None:
    """Runs the function in the first message.

    The function's standard input and output are separate from the messages.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    commands, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if (task := receive(commands)) is not None:
        task(commands, answers)


class Processes:
    """An engine of local processes. A process that dies is replaced, and its shard resumed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._children: set[Child] = set()
        self._lock = threading.Lock()
        self._is_over = False

    def start(self) -> int:
        """Returns the number of processes."""
        return self._count

    def run(self, work: Work, parts: Sequence[bytes]) -> Iterator[bytes]:
        """Yields the result of each shard as it ends."""
        with ThreadPoolExecutor(len(parts)) as threads:
            for done in as_completed([threads.submit(self._run, work, part) for part in parts]):
                yield done.result()

    def close(self) -> None:
        """Ends all processes immediately."""
        with self._lock:
            self._is_over = True
            for child in self._children:
                child.kill()

    def _run(self, work: Work, part: bytes) -> bytes:
        code = 0
        for _ in range(MAX_LOSSES):
            with self._lock:
                if self._is_over:
                    return failed(part, PrillError("the run was cancelled"))
                self._children.add(child := Child(_work))
            child.send((work, part))
            done: bytes | None = child.answer()
            with self._lock:
                self._children.discard(child)
            code = child.end()
            if done is not None:
                return done
        return failed(
            part,
            PrillError(
                f"{MAX_LOSSES} worker processes died at the same shard, the last with exit "
                f"code {code}; run the same command again to resume"
            ),
        )


def _work(commands: BinaryIO, answers: BinaryIO) -> None:
    work, part = receive(commands) or (None, b"")
    end_with(commands)
    gc.set_threshold(10_000)  # each garbage collection traverses all running calls
    if work is not None:
        send(answers, asyncio.run(work(part)))
