"""Flow control for one endpoint: adaptive concurrency and a circuit breaker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType

from prill.errors import EndpointGoneError

# Fewer failures than this may all be caused by the requests themselves.
MIN_CALLS = 5
# Additive increase, multiplicative decrease. x0.8, one step per cool-down of 15 s, follow what
# evaluation frameworks use.
SHRINK = 0.8
COOL_DOWN = 15.0


class CircuitBreaker:
    """Watches all calls to one endpoint in one event loop, and fails them together if it is
    unreachable.

    The circuit breaker opens when at least five calls have failed, none was answered since the
    first of these failures, and `patience` seconds have passed. If calls are made one at a time,
    five failures would take long; then each call gives up after a fifth of that time. When all of
    it has passed, the remaining calls share the time of one attempt, `timeout`. The circuit breaker
    therefore opens at the latest `patience` plus one attempt after the first failure. Later calls
    start a new count.
    """

    def __init__(self, place: str, patience: float, timeout: float) -> None:
        self.place, self.patience, self.timeout = place, patience, timeout
        self._since: float | None = None
        self._failing: dict[asyncio.Timeout, float] = {}
        self._open: set[asyncio.Timeout] = set()
        self.why = ""

    @asynccontextmanager
    async def call(self) -> AsyncIterator[asyncio.Timeout]:
        """Wraps one call with all its attempts; yields a handle for the call.

        Raises EndpointGoneError once the circuit breaker opens.
        """
        call = asyncio.timeout(None)
        self._open.add(call)
        try:
            async with call:
                yield call
        except TimeoutError:
            if not call.expired():
                raise
            raise EndpointGoneError(self.why) from None
        finally:
            self._open.discard(call)

    def answered(self) -> None:
        """Records a response, including an error: the endpoint is reachable."""
        self._since = None
        self._failing.clear()

    def failed(self, call: asyncio.Timeout, problem: object) -> None:
        """Records an attempt without a response, or with a request to retry later.

        Raises EndpointGoneError once the circuit breaker opens.
        """
        now = _now()
        self._since = now if self._since is None else self._since
        self._failing.setdefault(call, now)
        if len(self._failing) < MIN_CALLS or now - self._since < self.patience:
            return
        self.why = (
            f"{self.place} has not responded for {now - self._since:.3g} s "
            f"({len(self._failing)} calls failed; last error: {problem})"
        )
        self.answered()
        self._open.discard(call)
        for other in self._open:
            other.reschedule(now)
        self._open.clear()
        raise EndpointGoneError(self.why)

    def left(self) -> float:
        """Returns the seconds until the circuit breaker opens."""
        return (
            self.patience if self._since is None else max(0.0, self._since + self.patience - _now())
        )

    def attempt_seconds(self) -> float:
        """Returns the time limit of an attempt that starts now, in seconds."""
        return min(self.timeout, max(self.left(), self.timeout / (MIN_CALLS - 1)))

    def gives_up(self, call: asyncio.Timeout, *, told_to_wait: bool) -> bool:
        """Returns whether a failed call should give up, so that other calls are tried.

        A call that was asked to wait does not give up.
        """
        if told_to_wait or len(self._failing) >= MIN_CALLS:
            return not self.left()
        return (
            not self.left() or _now() - self._failing.get(call, _now()) >= self.patience / MIN_CALLS
        )


def _now() -> float:
    return asyncio.get_running_loop().time()


class AdaptiveLimiter:
    """Limits the number of concurrent holders, in FIFO order; for one event loop.

    Only `rate_limited` lowers the limit. It grows by one after every `limit` consecutive successes,
    up to `most`.
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
            elif turn in self._waiting:  # a call that has ended may have removed it already
                self._waiting.remove(turn)
            raise
        while (pause := self._closed_until - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(pause)
            except asyncio.CancelledError:
                self._release()
                raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def succeeded(self) -> None:
        """Records a success."""
        self._quiet += 1
        if self._quiet >= self.limit and self.limit < self.most:
            self.limit += 1
            self._quiet = 0
            self._wake()

    def rate_limited(self, pause: float | None) -> None:
        """Lowers the limit after a rate-limit error.

        `pause`: seconds during which no call starts (the endpoint's Retry-After).
        """
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
