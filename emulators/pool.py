"""A pool of environments: each serves one episode at a time, and broken ones are removed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Generic, TypeVar

from prill.errors import EnvironmentFailedError, UsageError
from prill.protocols import Environment

E = TypeVar("E", bound=Environment)


class Pool(Generic[E]):
    """Lends environments, the one that has rested longest first.

    Args:
        environments: The environments.
        patience: One that fails to begin this many episodes in a row is closed and not lent again, so that a dead phone does
            not use up tasks that others could do.
        closing: Bounds the closing of one, in seconds: a virtual device is shut down and its copy deleted well within the
            default.

    Raises:
        UsageError: There are no environments.
    """

    def __init__(self, environments: Sequence[E], *, patience: int = 3, closing: float = 120.0) -> None:
        if not environments:
            raise UsageError("a pool needs at least one environment")
        self._all = tuple(environments)
        self._free = deque(environments)
        self._patience, self._closing = patience, closing
        self._failures: dict[int, int] = {id(environment): 0 for environment in environments}
        self._set_aside: set[int] = set()
        self._last = ""
        self._change = asyncio.Condition()

    @property
    def size(self) -> int:
        """The number of environments in use or available."""
        return len(self._all) - len(self._set_aside)

    @contextlib.asynccontextmanager
    async def lend(self, *, but: E | None = None) -> AsyncIterator[E]:
        """Waits for one that is free, other than `but` while there are others.

        Raises:
            EnvironmentFailedError: All have been set aside.
        """
        async with self._change:
            await self._change.wait_for(lambda: not self.size or self._next(but) is not None)
            environment = self._next(but)
            if environment is None:
                raise EnvironmentFailedError(f"no environment is left that works; the last one said: {self._last}")
            self._free.remove(environment)
        try:
            yield environment
        finally:
            async with self._change:
                self._free.append(environment)
                self._change.notify_all()

    async def report(self, environment: E, failure: str | None) -> None:
        """Says of one that is lent why its episode could not begin; None when it did begin."""
        key = id(environment)
        self._failures[key] = 0 if failure is None else self._failures[key] + 1
        if failure is None or self._failures[key] < self._patience:
            return
        self._last = failure
        self._set_aside.add(key)
        # It is broken anyway, and has said how.
        with contextlib.suppress(EnvironmentFailedError):
            await self._close(environment)

    async def close(self) -> None:
        """Closes them all; safe to call twice.

        Raises:
            EnvironmentFailedError: One could not be closed; the first such error, once all have been asked.
        """
        ended = await asyncio.gather(*map(self._close, self._all), return_exceptions=True)
        for failure in ended:
            if failure is not None:
                raise failure

    def _next(self, but: E | None) -> E | None:
        working = (one for one in self._free if id(one) not in self._set_aside)
        return next((one for one in working if one is not but or self.size == 1), None)

    async def _close(self, environment: E) -> None:
        try:
            async with asyncio.timeout(self._closing):
                await environment.close()
        except TimeoutError:
            raise EnvironmentFailedError(f"an environment did not close within {self._closing:g} s") from None
