"""`prill.as_judge`: makes a judge of `async def f(trajectory) -> bool | float | Verdict`."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import Any

from prill.errors import NoEvidenceError, UsageError
from prill.evaluators.judgement import Judgement, make_verdict
from prill.types import EvaluatorInfo, Trajectory, Verdict

Answer = bool | float | Judgement | Verdict | None
THRESHOLD = 0.5  # minimum score of a success
_OFFERED = (
    "True or False, a score from 0 to 1 (a float), None where it cannot tell, or a prill.Verdict"
)


class FunctionJudge:
    """A judge that calls a function; created by `as_judge`.

    It can be pickled if the function is defined in a module or a file.

    Args:
        function: Judges a trajectory; see `as_judge` for its return values.
        info: Identifies the judge.
        screenshots: Whether the function reads the trajectory's screenshots.
    """

    def __init__(
        self,
        function: Callable[[Trajectory], Answer | Awaitable[Answer]],
        info: EvaluatorInfo,
        *,
        screenshots: bool,
    ) -> None:
        self.info = info
        self._function, self._looks = function, screenshots
        self.__qualname__ = ""
        update_wrapper(self, function)

    def __reduce__(self) -> tuple[Any, ...] | str:
        # The decorated name refers to this judge, so pickle cannot find the function by its name.
        found: object = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        return (
            self.__qualname__
            if found is self
            else (_made, (self._function, self.info, self._looks))
        )

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the trajectory's screenshots, or none if the function reads none."""
        return (
            [state.screenshot for state in trajectory.observations if state.screenshot]
            if self._looks
            else []
        )

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the function's result as a verdict.

        Raises:
            UsageError: The function returns an unsupported type or value.
        """
        own: list[Verdict] = []

        async def judge() -> Judgement:
            answer = await self._answer(trajectory)
            if isinstance(answer, Verdict):
                own.append(answer)
                return Judgement(False, 0.0, "")
            return self._judgement(answer, trajectory)

        verdict = await make_verdict(self, trajectory, judge)
        for own_verdict in own:  # add the usage of the function's own calls
            return replace(
                own_verdict,
                evaluator=self.info,
                usage=own_verdict.usage + verdict.usage,
                seconds=own_verdict.seconds or verdict.seconds,
            )
        return verdict

    async def _answer(self, trajectory: Trajectory) -> object:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(trajectory)
        answer = await asyncio.to_thread(self._function, trajectory)
        return await answer if inspect.isawaitable(answer) else answer

    def _judgement(self, answer: object, trajectory: Trajectory) -> Judgement:
        if isinstance(answer, Judgement):
            return answer
        if answer is None:
            raise NoEvidenceError(f"{self.info.name} returned None: it cannot tell")
        if isinstance(answer, bool):
            return Judgement(answer, float(answer), "")
        if isinstance(answer, float) and 0.0 <= answer <= 1.0:
            return Judgement(answer >= THRESHOLD, float(answer), "")
        what = (
            repr(answer)
            if isinstance(answer, float)
            else f"a value of type {type(answer).__name__}"
        )
        raise UsageError(
            f"the judge {self.info.name!r} returned {what} for {trajectory.id!r}; return {_OFFERED}"
        )


def _made(
    function: Callable[[Trajectory], Answer | Awaitable[Answer]], info: EvaluatorInfo, looks: bool
) -> FunctionJudge:
    return FunctionJudge(function, info, screenshots=looks)


def as_judge(
    name: str, *, version: str, screenshots: bool = True
) -> Callable[[Callable[[Trajectory], Answer | Awaitable[Answer]]], FunctionJudge]:
    """Decorates a function as a judge, for `prill.score`, rewards, and `file.py:f` on the command
    line.

        @prill.as_judge("thanks", version="1")
        async def thanks(trajectory: prill.Trajectory) -> bool:
            return "thank you" in (trajectory.answer or "")

    The function takes a `Trajectory`. `True` or `False` is success or failure; a float is the
    probability of success in [0, 1], and 0.5 or more is a success; `None` means that it cannot
    decide, and the trajectory is unscored (`no_evidence`). If it raises
    `prill.NoEvidenceError("why")`, the trajectory is unscored with that reason; any other exception
    makes it unscored with `parse` and is logged. It may also return a whole `Verdict`. A plain
    `def` is called in a thread, several at a time.

    Args:
        name: The judge's name in verdicts.
        version: Increase it when the verdicts change; a resumed run keeps existing verdicts of the
            same version.
        screenshots: Whether the function reads screenshots. Verdicts then depend on the content of
            these images.

    Returns:
        A decorator that returns a judge.

    Raises:
        UsageError: Name or version is not a string, or the function does not take exactly one
            trajectory.
    """
    if not isinstance(name, str):
        raise UsageError(
            "as_judge needs a name and a version; write @prill.as_judge('name', version='1')"
        )
    if not name or not isinstance(version, str) or not version:
        raise UsageError(
            f"as_judge({name!r}, version={version!r}): name and version must be non-empty strings"
        )

    def decorate(function: Callable[[Trajectory], Answer | Awaitable[Answer]]) -> FunctionJudge:
        try:
            inspect.signature(function).bind(None)
        except TypeError:
            raise UsageError(
                f"as_judge: {name!r} must be a function that takes one trajectory"
            ) from None
        return FunctionJudge(function, EvaluatorInfo(name, version), screenshots=screenshots)

    return decorate
