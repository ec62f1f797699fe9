"""Several environments (phones, simulators, browsers) lent to episodes, each to one at a time; broken ones are set aside."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from prill.errors import EnvironmentFailure, UsageError
from prill.protocols import Environment

E = TypeVar("E", bound=Environment)


class Pool(Generic[E]):
    """Hands out the one that has rested longest.

    One that fails to begin `patience` episodes in a row is closed and not lent again, so that a dead phone
    does not use up the tasks that the others could do.
    """

    def __init__(self, environments: Sequence[E], *, patience: int = 3) -> None:
        if not environments:
            raise UsageError("a pool needs at least one environment")
        self._all = tuple(environments)
        self._free = deque(environments)
        self._patience = patience
        self._failures: dict[int, int] = {id(environment): 0 for environment in environments}
        self._set_aside: set[int] = set()
        self._last = ""
        self._change = asyncio.Condition()

    @property
    def size(self) -> int:
        """How many are in use or may be lent."""
        return len(self._all) - len(self._set_aside)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[E]:
        """Waits for one that is free. Raises EnvironmentFailure when all have been set aside."""
        async with self._change:
            await self._change.wait_for(lambda: self._free or not self.size)
            if not self._free:
                raise EnvironmentFailure(f"no environment is left that works; the last one said: {self._last}")
            environment = self._free.popleft()
        try:
            yield environment
        finally:
            async with self._change:
                if id(environment) not in self._set_aside:
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
        await environment.close()

    async def close(self) -> None:
        """Closes them all; safe to call twice."""
        await asyncio.gather(*(environment.close() for environment in self._all))
