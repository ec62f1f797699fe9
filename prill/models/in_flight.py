"""Deduplicates equal work that runs at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from prill.models.ledger import queued

_T = TypeVar("_T")


class InFlight:
    """Lets equal pieces of work that overlap in one event loop share one execution."""

    def __init__(self) -> None:
        self._tasks: WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[str, asyncio.Future[Any]]
        ] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type[InFlight], tuple[()]]:
        return InFlight, ()  # what is under way here is not under way elsewhere

    async def once(self, key: str, work: Callable[[], Awaitable[_T]]) -> _T:
        """The result of `work`, run by the first caller; when that one is cancelled, the next runs
        it again.
        """
        running = self._tasks.setdefault(asyncio.get_running_loop(), {})
        while (other := running.get(key)) is not None:
            try:
                with queued():  # what is under way is the time of whoever began it
                    return cast(_T, await asyncio.shield(other))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not other.cancelled() or (task is not None and task.cancelling()):
                    raise
        future = running[key] = asyncio.get_running_loop().create_future()
        try:
            result = await work()
        except Exception as error:  # whatever it is: those who wait for the same work get it too
            future.set_exception(error)
            # read here, so that nobody else having waited is not reported as a lost error
            future.exception()
            raise
        else:
            future.set_result(result)
            return result
        finally:
            future.cancel()  # without effect unless the work was cancelled
            running.pop(key, None)
