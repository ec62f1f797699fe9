"""Calls side by side: results in order, the first failure ends the rest, and what ends a run is
raised first.
"""

import asyncio
import gc

import pytest

from prill.errors import AnswerPendingError, CallTimeoutError, TransportError
from prill.models.calls import gather_calls


async def after(turns: int, outcome: object, log: list[object] | None = None) -> object:
    try:
        for _ in range(turns):
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        if log is not None:
            log.append(outcome)
        raise
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def test_together_keeps_order_of_calls() -> None:
    assert await gather_calls([after(3, "a"), after(1, "b"), after(2, "c")]) == ["a", "b", "c"]
    assert await gather_calls([]) == []


async def test_first_failure_drops_the_rest() -> None:
    dropped: list[object] = []
    with pytest.raises(CallTimeoutError, match="late"):
        await gather_calls(
            [
                after(9, "slow", dropped),
                after(1, CallTimeoutError("late")),
                after(9, "slower", dropped),
            ]
        )
    assert set(dropped) == {"slow", "slower"}


async def test_pending_answer_drops_no_call() -> None:
    made: list[object] = []

    async def call(i: int) -> None:
        made.append(i)
        await asyncio.sleep(0)
        raise AnswerPendingError(f"{i} is still to come")

    with pytest.raises(AnswerPendingError, match="0 is"):
        await gather_calls([call(i) for i in range(40)])
    assert made == [*range(40)]
    with pytest.raises(CallTimeoutError):
        await gather_calls([call(0), after(3, CallTimeoutError("late"))])


async def test_calls_begun_at_once_are_bounded(recwarn: pytest.WarningsRecorder) -> None:
    begun: list[int] = []

    async def call(i: int) -> None:
        begun.append(i)
        await asyncio.sleep(0)
        if i == 3:
            raise TransportError("down")
        await asyncio.Event().wait()

    with pytest.raises(TransportError):
        await gather_calls([call(i) for i in range(500)])
    gc.collect()
    assert 4 <= len(begun) < 50
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]
    assert await gather_calls([after(1, i) for i in range(500)]) == list(range(500))
