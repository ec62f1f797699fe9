"""How many calls may be under way at once: shrinks when the endpoint says it is too much, grows back when it is quiet."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

# Additive increase, multiplicative decrease. x0.8, one step per cool-down of 15 s, follow what evaluation frameworks use.
SHRINK = 0.8
COOL_DOWN = 15.0


class AdaptiveLimiter:
    """At most `limit` holders at a time, first come first served; for one event loop.

    Only `rate_limited` lowers the limit. It grows by one each time `limit` calls in a row went well, up to `most`.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = most
        self.in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._quiet = 0
        self._closed_until = 0.0
        self._shrunk_at = -COOL_DOWN

    async def __aenter__(self) -> None:
        while (pause := self._closed_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(pause)
        if self.in_use < self.limit and not self._waiting:
            self.in_use += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()
            elif turn in self._waiting:  # a call that ended in the meantime may have taken it out
                self._waiting.remove(turn)
            raise
        while (pause := self._closed_until - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(pause)
            except asyncio.CancelledError:
                self._release()
                raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def succeeded(self) -> None:
        """A call went well."""
        self._quiet += 1
        if self._quiet >= self.limit and self.limit < self.most:
            self.limit += 1
            self._quiet = 0
            self._wake()

    def rate_limited(self, pause: float | None) -> None:
        """The endpoint asked for less. `pause`: seconds during which no call starts (its Retry-After)."""
        now = asyncio.get_running_loop().time()
        self._quiet = 0
        if now - self._shrunk_at >= COOL_DOWN:
            self.limit = max(1, int(self.limit * SHRINK))
            self._shrunk_at = now
        if pause:
            self._closed_until = max(self._closed_until, now + pause)

    def _release(self) -> None:
        self.in_use -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.in_use < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_use += 1
                turn.set_result(None)
