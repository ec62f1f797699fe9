"""What calls to one endpoint share: a limit on their number that adapts, and the end of them all once it is gone for good."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

from prill.errors import EndpointGone

PATIENCE = 300.0  # seconds
# Fewer than this many may all be the fault of what they ask.
LEAST_CALLS = 5
# Additive increase, multiplicative decrease. x0.8, one step per cool-down of 15 s, follow what evaluation frameworks use.
SHRINK = 0.8
COOL_DOWN = 15.0


class Guard:
    """Watches all calls to one endpoint in one event loop, and ends them together once it is gone.

    It is gone when five calls or more have failed, none was answered since the first of these failures, and `patience`
    seconds have passed. Where calls are made one at a time, five would take long to fail: there a call ends early after a
    fifth of that time, and when all of it is spent the calls still missing share the time of one attempt, `timeout`. So the
    end comes at latest `patience` and one attempt after the first failure. What comes later begins anew.
    """

    def __init__(self, place: str, patience: float, timeout: float) -> None:
        self.place, self.patience, self.timeout = place, patience, timeout
        self._since: float | None = None
        self._failing: dict[asyncio.Timeout, float] = {}
        self._open: set[asyncio.Timeout] = set()
        self.why = ""

    def call(self) -> Watched:
        """Around one call with all its attempts; what it gives stands for the call. Raises EndpointGone with all others."""
        return Watched(self)

    def begin(self, call: asyncio.Timeout) -> None:
        """A call is under way."""
        self._open.add(call)

    def end(self, call: asyncio.Timeout) -> None:
        """It is over."""
        self._open.discard(call)

    def answered(self) -> None:
        """The endpoint answered something, be it a refusal: it is there."""
        self._since = None
        self._failing.clear()

    def failed(self, call: asyncio.Timeout, problem: object) -> None:
        """An attempt had no answer, or one that asks to come again. Raises EndpointGone when that was the last straw."""
        now = _now()
        self._since = now if self._since is None else self._since
        self._failing.setdefault(call, now)
        if len(self._failing) < LEAST_CALLS or now - self._since < self.patience:
            return
        self.why = (
            f"{self.place} has answered nothing for {now - self._since:.3g} s ({len(self._failing)} calls failed; the last: "
            f"{problem})"
        )
        self.answered()
        self._open.discard(call)
        for other in self._open:
            other.reschedule(now)
        self._open.clear()
        raise EndpointGone(self.why)

    def left(self) -> float:
        """Seconds of patience that are left."""
        return self.patience if self._since is None else max(0.0, self._since + self.patience - _now())

    def attempt_seconds(self) -> float:
        """How long an attempt that begins now may take."""
        return min(self.timeout, max(self.left(), self.timeout / (LEAST_CALLS - 1)))

    def gives_up(self, call: asyncio.Timeout, *, told_to_wait: bool) -> bool:
        """Whether a call that has failed should leave it at that, so that others are tried; one that was told to wait waits."""
        if told_to_wait or len(self._failing) >= LEAST_CALLS:
            return not self.left()
        return not self.left() or _now() - self._failing.get(call, _now()) >= self.patience / LEAST_CALLS


class Watched:
    """What a guard is around one call: `async with` it."""

    __slots__ = ("_call", "_guard")

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._call = asyncio.timeout(None)

    async def __aenter__(self) -> asyncio.Timeout:
        self._guard.begin(self._call)
        return await self._call.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._guard.end(self._call)
        try:
            await self._call.__aexit__(kind, error, trace)
        except TimeoutError:
            raise EndpointGone(self._guard.why) from None


def _now() -> float:
    return asyncio.get_running_loop().time()


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
