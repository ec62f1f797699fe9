"""A judge for verifiers (`verifiers.v1`), which loads judges from modules by name.

Export it from a module of your own:

# prill_judge.py, anywhere on the Python path
from prill.refine.rewards.verifiers import PrillJudge
__all__ = ["PrillJudge"]

TaskConfig(judges=[{"id": "prill_judge", "judge": "vlm", "model": "gpt-4o", "options": {"kind":
"score"}}])
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from prill.errors import MissingExtraError, UsageError
from prill.refine.rewards.chat import carried
from prill.refine.rewards.reward import Reward, RewardResult, make_reward

if TYPE_CHECKING:
    PrillJudge: type[Any]

__all__ = ["PrillJudge"]
_UNUSED = ("sampling", "prompt", "headers", "headers_from_env", "timeout")


def __getattr__(name: str) -> Any:
    if name in ("PrillJudge", "PrillJudgeConfig"):
        return _classes()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@lru_cache(1)
def _classes() -> dict[str, type[Any]]:
    """Defines the judge and its configuration, subclasses of verifiers' classes, on first use."""
    try:
        import verifiers.v1 as vf
    except ModuleNotFoundError:
        raise MissingExtraError("verifiers") from None

    class PrillJudgeConfig(vf.JudgeConfig):  # type: ignore[misc,unused-ignore]
        judge: str | dict[str, Any] = "vlm"
        """The judge, as for prill.reward: a name, a TOML or JSON file, or a table."""
        options: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
        """Options of the judge and of the reward."""
        column: str | None = None
        """The field of the task data with a trajectory; None: judge the trace's messages."""
        root: str | None = None
        """The folder of recorded files and their images."""

    class PrillJudge(vf.Judge[float, PrillJudgeConfig]):  # type: ignore[misc,unused-ignore]
        """A judge of traces with their screenshots. A trace without a verdict raises, so that
        verifiers retries the sample.
        """

        async def score(self, task: Any, trace: Any) -> float:
            messages = [message.model_dump() for message in trace.messages]
            row = task.model_dump() if self.config.column is not None else {}
            item = await asyncio.to_thread(
                carried,
                row,
                self.config.column,
                messages,
                root=self.config.root,
                place=f"task {task.idx}",
            )
            result = await _make_reward(self.config).result(item)
            _record(self, trace, result)
            assert result.reward is not None  # it raises instead
            return result.reward

    for made in (PrillJudgeConfig, PrillJudge):
        made.__module__, made.__qualname__ = __name__, made.__name__
    return {"PrillJudge": PrillJudge, "PrillJudgeConfig": PrillJudgeConfig}


def _make_reward(config: Any) -> Reward:
    """Makes the reward of a configuration once: verifiers creates a judge for every sample."""
    return _made(config.model_dump_json())


@lru_cache(32)
def _made(text: str) -> Reward:
    config = _classes()["PrillJudgeConfig"].model_validate_json(text)
    # After pickling, set fields cannot be told from unset ones, so values are compared with the
    # defaults.
    given = {
        name
        for name in type(config).model_fields
        if getattr(config, name) != _default(config, name)
    }
    if unused := [name for name in _UNUSED if name in given]:
        raise UsageError(
            f"{', '.join(unused)}: not used by prill's judges; set `options` of the judge instead"
        )
    options = dict(config.options)
    if "model" in given:
        options.setdefault("model", config.model)
    if "base_url" in given:
        options.setdefault("base_url", config.base_url)
    if given & {"base_url", "api_key_var"}:
        options.setdefault("api_key_env", config.api_key_var)
    return make_reward(config.judge, **options).raising()


def _default(config: Any, name: str) -> Any:
    return type(config).model_fields[name].get_default(call_default_factory=True)


def _record(judge: Any, trace: Any, result: RewardResult) -> None:
    """Stores verdict and token usage in the trace, as verifiers does for its own judges."""
    import verifiers.v1 as vf

    verdict = result.verdict
    usage = vf.Usage(
        prompt_tokens=verdict.usage.prompt_tokens,
        completion_tokens=verdict.usage.completion_tokens,
        cost=verdict.usage.usd,
    )
    trace.record_judge_call(
        name=judge.reward_name,
        request={
            "model": verdict.evaluator.model,
            "judge": verdict.evaluator.name,
            "trajectory": verdict.id,
        },
        response=vf.JudgeResponse(
            text=verdict.reason,
            parsed={**result.numbers, "turn_rewards": result.turn_rewards},
            usage=usage,
        ),
    )
