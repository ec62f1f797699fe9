"""Deduplicates equal concurrent work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from prill.models.ledger import queued

_T = TypeVar("_T")


class InFlight:
    """Shares one execution among equal concurrent calls in one event loop."""

    def __init__(self) -> None:
        self._tasks: WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[str, asyncio.Future[Any]]
        ] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type[InFlight], tuple[()]]:
        return InFlight, ()  # running work cannot be shared with another process

    async def once(self, key: str, work: Callable[[], Awaitable[_T]]) -> _T:
        """Returns the result of `work`, which the first caller runs.

        If that caller is cancelled, the next one runs it again.
        """
        running = self._tasks.setdefault(asyncio.get_running_loop(), {})
        while (other := running.get(key)) is not None:
            try:
                with queued():  # the time counts for the caller that runs the work
                    return cast(_T, await asyncio.shield(other))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not other.cancelled() or (task is not None and task.cancelling()):
                    raise
        future = running[key] = asyncio.get_running_loop().create_future()
        try:
            result = await work()
        except Exception as error:  # any exception: the other callers must receive it too
            future.set_exception(error)
            # retrieved here, so that asyncio logs no lost exception if there is no other caller
            future.exception()
            raise
        else:
            future.set_result(result)
            return result
        finally:
            future.cancel()  # has no effect unless the work was cancelled
            running.pop(key, None)
