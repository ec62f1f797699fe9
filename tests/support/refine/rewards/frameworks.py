"""Prints how a framework handles a judge. It runs in a Python that has the framework, with the
addresses of mock endpoints.

    python tests/support/refine/rewards/frameworks.py verl '{"well": "http://…", "late": "http://…",
    "garbage": "http://…"}'

It prints JSON: what is seen by policy and case, in the words of the tables in
docs/how-to/rewards.md, and `more`, what the tests ask besides. Of those in trainer_requests.py it
prints the results of requests to the services whose addresses are given.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from table import CASES, COMMON, POLICIES, in_loop, made, seen, trajectory_for
from trainer_requests import REQUESTS  # in this folder

from prill.refine.rewards import Reward, to_json
from prill.types import Trajectory

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # noqa: E501
EXAMPLE = Path(__file__).resolve().parents[4] / "examples/verl_reward.py"
Options = dict[str, Any]


def verl(options: Options, trajectory: Trajectory) -> object:
    return verl_manager(made(options), "naive", trajectory)["reward_score"]


def verl_manager(
    reward: Reward, name: str, trajectory: Trajectory, **settings: Any
) -> dict[str, Any]:
    """Returns the result of that reward manager of verl."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "reward.py")
        file.write_text(
            "import pickle\nfrom prill.refine.rewards.verl import make_compute_score\n"
            f"compute_score = make_compute_score(pickle.loads({pickle.dumps(reward)!r}))\n"
        )
        return verl_by_file(file, name, trajectory, **settings)


def verl_by_file(file: Path, name: str, trajectory: Trajectory, **settings: Any) -> dict[str, Any]:
    """Returns the result of a reward function that verl loads from that file."""
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    class Words:
        def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
            return " ".join(map(str, ids.tolist()))

    config = {
        "num_workers": 1,
        "custom_reward_function": {"path": str(file), "name": "compute_score", "reward_kwargs": {}},
        "reward_manager": {
            "source": "register",
            "name": name,
            "module": {"path": None, "name": None},
        },
        "sandbox_fusion": {"url": None},
        **settings,
    }
    manager = load_reward_manager(OmegaConf.create({"reward": config}), Words())
    assert manager.is_async_reward_score, "verl knows that the function is async"
    ids = torch.ones(1, 2, dtype=torch.long)
    extra = {"index": 0, "trajectory": to_json(trajectory)}
    data = DataProto.from_dict(
        tensors={
            "prompts": ids,
            "responses": ids,
            "attention_mask": torch.ones(1, 4, dtype=torch.long),
        },
        non_tensors={
            "data_source": np.array(["shop"], dtype=object),
            "reward_model": np.array([{"ground_truth": ""}], dtype=object),
            "extra_info": np.array([extra], dtype=object),
        },
    )
    given: dict[str, Any] = manager.loop.run_until_complete(manager.run_single(data))
    return given


def more_of_verl(places: dict[str, Options]) -> dict[str, Any]:
    limits = {"max_concurrent": 4, "max_rpm": None, "timeout": 60}
    valued = {"on_unscored": "value", "value": 0.25}
    success, unscored = trajectory_for("success"), trajectory_for("unscored")
    os.environ["OPENAI_BASE_URL"] = places["success"]["base_url"]
    return {
        "example": verl_by_file(EXAMPLE, "naive", success)["reward_score"],
        "scored": verl_manager(made(places["success"]), "naive", success),
        "valued": verl_manager(made(places["unscored"], **valued), "naive", unscored),
        "limited": verl_manager(made(places["unscored"]), "rate_limited", unscored, **limits),
        "limited and valued": verl_manager(
            made(places["unscored"], **valued), "rate_limited", unscored, **limits
        ),
    }


def verifiers(options: Options, trajectory: Trajectory) -> object:
    return verifiers_trace(
        [], {"judge": "modular", "options": options, "column": "trajectory"}, to_json(trajectory)
    ).reward


def verifiers_trace(messages: list[Any], judge: Options, packed: str = "") -> Any:
    """Returns a trace after verifiers scored it with that judge."""
    import verifiers.v1 as vf
    from verifiers.v1.graph import MessageNode

    class Data(vf.TaskData):
        trajectory: str = ""

    class Shop(vf.Task[Data, vf.State, vf.TaskConfig]):
        @vf.reward(weight=0.0)
        async def nothing(self, trace: Any) -> float:
            return 0.0

    task = Shop(
        Data(idx=0, prompt="buy tea", trajectory=packed),
        vf.TaskConfig(judges=[{"id": "prill_judge", **judge}]),
    )
    nodes = [
        MessageNode(
            parent=i - 1 if i else None, message=message, sampled=message.role == "assistant"
        )
        for i, message in enumerate(messages)
    ]
    described = vf.TraceTask(type="Shop", data=task.data)
    trace = vf.Trace(task=described, agent=vf.AgentInfo.model_construct(config=None), nodes=nodes)
    asyncio.run(task.score(trace))
    return trace


def more_of_verifiers(places: dict[str, Options]) -> dict[str, Any]:
    import verifiers.v1 as vf

    page = [
        vf.TextContentPart(text="Order placed"),
        vf.ImageUrlContentPart(image_url={"url": PIXEL}),
    ]
    call = vf.ToolCall(id="c", name="click", arguments='{"element": "Buy truth=success"}')
    messages = [
        vf.UserMessage(content="buy tea"),
        vf.AssistantMessage(content="I buy it", tool_calls=[call]),
        vf.ToolMessage(tool_call_id="c", content=page),
    ]
    judge = {
        "judge": "vlm",
        "model": "mock",
        "base_url": places["success"]["base_url"],
        "weight": 2.0,
    }
    trace = verifiers_trace(
        messages, judge | {"api_key_var": "NO_SUCH_KEY", "options": {"retries": 0}}
    )
    (call,) = trace.info["judge_calls"]
    return {
        "reward": trace.reward,
        "call": call["response"]["parsed"],
        "tokens": trace.extra_usage[0].prompt_tokens,
    }


def inspect(options: Options, trajectory: Trajectory) -> object:
    try:
        score, _ = inspect_log(
            {"judge": "modular", "column": "trajectory", **options},
            {"trajectory": to_json(trajectory)},
        )
    except InspectFailedError as failed:
        return failed.args[0]
    return score.value


class InspectFailedError(Exception):
    """Raised if an evaluation ended with an error."""


class Said(str):
    """A text exactly as in the table."""

    __slots__ = ()
    __repr__ = str.__str__


def inspect_log(judge: Options, metadata: dict[str, Any], solver: Any = None) -> tuple[Any, Any]:
    """Returns prill's score of one sample and the results of its evaluation, both read from the
    log.
    """
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.solver import generate

    from prill.refine.rewards.inspect_ai import judge_scorer

    def answer(*asked: Any) -> Any:
        output = ModelOutput.from_content("mockllm", "Bought.")
        # avoids the download of a tokenizer
        output.usage = ModelUsage(input_tokens=10, output_tokens=4, total_tokens=14)
        return output

    model = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    task = Task(
        dataset=[Sample(id=1, input="buy tea", metadata=metadata)],
        solver=solver or generate(),
        scorer=judge_scorer(judge.pop("judge"), **judge),
    )
    with tempfile.TemporaryDirectory() as folder:
        (log,) = eval(task, model=model, display="none", log_dir=folder)
        if log.status != "success":
            raise InspectFailedError(
                Said(f"{log.status}: {log.error.message.partition('(')[0]}"), log.error
            )
        return log.samples[0].scores["prill"], log.results.scores[0]


def more_of_inspect(places: dict[str, Options]) -> dict[str, Any]:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ContentImage, ContentText
    from inspect_ai.solver import solver
    from inspect_ai.tool import ToolCall

    @solver
    def shopper() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            call = ToolCall(id="c", function="click", arguments={"element": "Buy truth=success"})
            page = [ContentText(text="Order placed"), ContentImage(image=PIXEL)]
            state.messages += [
                ChatMessageAssistant(content="", tool_calls=[call]),
                ChatMessageTool(content=page),
            ]
            return state

        return solve

    scored, _ = inspect_log(
        {"judge": "vlm", **_without(places["success"], "captioner")}, {}, shopper()
    )
    score, results = inspect_log(
        {"judge": "modular", "column": "trajectory", **places["unscored"]},
        {"trajectory": to_json(trajectory_for("unscored"))},
    )
    return {
        "conversation": scored.value,
        "reason": score.reason,
        "counted": [results.scored_samples, results.unscored_samples],
    }


def openenv(options: Options, trajectory: Trajectory) -> object:
    return openenv_episode(options, trajectory)[0]


def openenv_episode(options: Options, trajectory: Trajectory) -> tuple[Any, Any]:
    """Returns the reward at the end of a two-step episode, and the rewards of its steps."""
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    from prill.refine.rewards.openenv import judge_rubric

    class Click(Action):
        element: str

    class Page(Observation):
        text: str | None = None
        goal: str = trajectory.task.goal

    class Shop(Environment):
        def reset(self, **options: Any) -> Any:
            self._reset_rubric()
            return Page(text="A shop")

        def step(self, action: Any, **options: Any) -> Any:
            done = action.element == "Buy"
            page = Page(text=trajectory.final.text if done else "A cart", done=done)
            page.reward = self._apply_rubric(action, page)
            return page

        @property
        def state(self) -> Any:
            return State()

    shop = Shop(rubric=judge_rubric(made(options)))
    shop.reset()
    assert shop.step(Click(element="Cart")).reward == 0.0, (
        "before its end an episode has the intermediate reward"
    )
    return shop.step(Click(element="Buy")).reward, shop.rubric.compute_step_rewards()


def more_of_openenv(places: dict[str, Options]) -> dict[str, Any]:
    from prill.refine.rewards.openenv import judge_rubric

    # An episode without a verdict, after one with a verdict.
    rubric = judge_rubric(made(places["success"]), trajectory_of=lambda episode: episode[0])
    rubric.score_trajectory([trajectory_for("success")])
    later = [trajectory_for("unscored")]
    told = [
        seen(lambda reward, trajectory: rubric.score_trajectory(later), rubric, later[0]),
        seen(lambda reward, trajectory: rubric.compute_step_rewards(), rubric, later[0]),
    ]
    return {
        "steps": openenv_episode(places["success"], trajectory_for("success"))[1],
        "later": told,
    }


def art(options: Options, trajectory: Trajectory) -> object:
    kept = art_groups(options, [trajectory, trajectory])
    return [one.reward for one in kept[0]] if kept else None


def art_groups(options: Options, trajectories: list[Trajectory]) -> list[Any]:
    """Returns the groups that ART gathers from one group of these trajectories."""
    import art
    from art.gather import gather_trajectory_groups

    from prill.refine.rewards.art import group_scorer

    async def play(trajectory: Trajectory) -> Any:
        messages = [{"role": "user", "content": trajectory.task.goal}]
        return art.Trajectory(
            messages_and_choices=messages, metadata={"trajectory": to_json(trajectory)}
        )

    async def gathered() -> list[Any]:
        scorer = group_scorer(made(options), column="trajectory")
        groups = [art.TrajectoryGroup(play(trajectory) for trajectory in trajectories)]
        return await gather_trajectory_groups(groups, after_each=scorer, pbar_desc=None)

    return in_loop(gathered)


def more_of_art(places: dict[str, Options]) -> dict[str, Any]:
    (group,) = art_groups(
        places["success"], [trajectory_for(case) for case in ("success", "unscored", "failure")]
    )
    return {
        "rewards": sorted(one.reward for one in group),
        "unscored": group.metrics["prill/unscored"],
    }


def _without(options: Options, name: str) -> Options:
    return {key: value for key, value in options.items() if key != name}


SEEN: dict[
    str,
    tuple[Callable[[Options, Trajectory], object], Callable[[dict[str, Options]], dict[str, Any]]],
] = {
    "verl": (verl, more_of_verl),
    "verifiers": (verifiers, more_of_verifiers),
    "Inspect": (inspect, more_of_inspect),
    "OpenEnv": (openenv, more_of_openenv),
    "ART": (art, more_of_art),
}


def main(name: str, servers: dict[str, str]) -> None:
    """Prints how that framework handles each case."""
    if name in REQUESTS:
        print("\n" + json.dumps(REQUESTS[name](servers)))
        return
    urls = {"timeout": servers["late"], "garbage reply": servers["garbage"]}
    places = {
        case: {
            **COMMON,
            "base_url": urls.get(case, servers["well"]),
            "timeout": 0.5 if case == "timeout" else 60.0,
        }
        for case in CASES
    }
    see, more = SEEN[name]
    found = {
        policy: {
            case: seen(see, {**places[case], **options}, trajectory_for(case)) for case in CASES
        }
        for policy, options in POLICIES.items()
    }
    print("\n" + json.dumps({**found, "more": more(places)}, default=str))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
