"""Runs the trainers' own code that requests rewards: OpenRLHF's, slime's (in its fork miles),
NeMo-Gym's and ms-swift's.

frameworks.py runs it in an environment that has the package, often without its other dependencies.
"""

from __future__ import annotations

import asyncio
import json
import logging
import runpy
import socket
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from table import COMMON, in_loop, made, trajectory_for  # in this folder

from prill.refine.rewards import TRLReward, to_json

EXAMPLE = Path(__file__).resolve().parents[4] / "examples/nemo_gym/app.py"


def stand_in(package: str, **names: Any) -> ModuleType:
    """Registers a package without running its `__init__`, which needs a trainer's GPU libraries.
    Its modules are found as usual.
    """
    module = ModuleType(package)
    base = package.replace(".", "/")
    module.__path__ = [str(folder) for place in sys.path if (folder := Path(place, base)).is_dir()]
    vars(module).update(names)
    sys.modules[package] = module
    return module


def openrlhf(servers: dict[str, str]) -> dict[str, Any]:
    """Returns the samples of OpenRLHF's single-turn executor, by the addresses of two services."""
    import numpy as np

    for package in ("openrlhf", "openrlhf.utils"):
        stand_in(package)
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    class Words:
        def __call__(self, text: str, **options: Any) -> dict[str, Any]:
            return {"input_ids": np.array([[1, 2]])}

        def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
            return "prompt and response"

    class Engine:
        async def generate(self, *asked: Any, **options: Any) -> Any:
            return SimpleNamespace(
                outputs=[SimpleNamespace(token_ids=[3], finish_reason="stop", logprobs=None)]
            )

    async def sample(place: str, case: str) -> dict[str, Any]:
        sampling = SimpleNamespace(max_tokens=4, logprobs=None)
        executor = SingleTurnAgentExecutor(servers[place] + "/get_reward")
        found = await executor.execute(
            "prompt", to_json(trajectory_for(case)), sampling, 100, Words(), Engine()
        )
        return {
            "reward": found["reward"],
            "scores": found["scores"],
            "logs": sorted(found["extra_logs"]),
        }

    async def samples() -> list[dict[str, Any]]:
        # A failure takes five attempts, one second apart.
        cases = (
            ("well", "success"),
            ("well", "failure"),
            ("well", "unscored"),
            ("garbage", "success"),
        )
        return await asyncio.gather(*(sample(place, case) for place, case in cases))

    return dict(
        zip(("success", "failure", "unscored", "garbage reply"), in_loop(samples), strict=True)
    )


def slime(servers: dict[str, str]) -> dict[str, Any]:
    """Returns the rewards of slime's client, in the code of its fork miles. No package index has
    slime itself.
    """
    stand_in("torch", dtype=object, Size=tuple, Tensor=list)
    for package in ("miles", "miles.utils", "miles.rollout"):
        stand_in(package)
    stand_in("miles.utils.misc", load_function=None)
    graders = {
        "deepscaler": "get_deepscaler_rule_based_reward",
        "f1": "f1_score",
        "gpqa": "compute_gpqa_reward",
    }
    for module, name in graders.items():  # graders for mathematics, with packages of their own
        stand_in(f"miles.rollout.rm_hub.{module}", **{name: None})
    stand_in("miles.rollout.rm_hub.math_dapo_utils", compute_score=None)
    stand_in("miles.rollout.rm_hub.math_utils", extract_answer=None, grade_answer_verl=None)
    from miles.rollout.rm_hub import batched_async_rm
    from miles.utils.types import Sample

    def fetched(place: str, case: str, query: str = "") -> object:
        key = "reward" if query else None
        asked = SimpleNamespace(
            custom_rm_path=None,
            rm_type="remote_rm",
            rm_url=f"{servers[place]}/rm{query}",
            reward_key=key,
        )
        sample = Sample(prompt="p", response="r", label=to_json(trajectory_for(case)))
        try:
            in_loop(batched_async_rm, asked, [sample], inplace_set_reward_field=True)
        except Exception as error:  # noqa: BLE001 - whatever it makes of the status
            return [str(getattr(error, "status", error)), sample.reward]
        return sample.get_reward_value(asked)

    return {
        **{case: fetched("well", case) for case in ("success", "failure", "unscored")},
        "garbage reply": fetched("garbage", "success"),
        "table": fetched("well", "success", "?detail=1"),
    }


def nemo_gym(servers: dict[str, str]) -> dict[str, Any]:
    """Returns NeMo-Gym's collection: its agent, its rollouts and the resources server of
    examples/nemo_gym.
    """
    # Uploads of metrics.
    stand_in(
        "wandb",
        util=stand_in("wandb.util"),
        Run=object,
        Table=object,
        Histogram=lambda values: None,
    )
    stand_in("ray", __version__="0")
    stand_in("nemo_gym.profiling", Profiler=None)
    import uvicorn
    from fastapi import FastAPI
    from nemo_gym import rollout_collection, server_utils
    from nemo_gym.global_config import GlobalConfigDictParser
    from omegaconf import OmegaConf
    from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

    example = runpy.run_path(str(EXAMPLE))
    known = {"policy_model": {"responses_api_models": {"model": {"entrypoint": "app.py"}}}}
    configured = OmegaConf.merge(OmegaConf.load(EXAMPLE.with_name("prill_judge.yaml")), known)
    # raises for unknown settings
    parsed = GlobalConfigDictParser().parse_no_environment(configured)
    inner = parsed["prill_judge"]["resources_servers"]["prill_judge"]
    example["JudgeConfig"].model_validate({"name": "prill_judge", **OmegaConf.to_container(inner)})
    said = {"type": "output_text", "text": "Bought.", "annotations": []}
    message = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [said],
    }
    response = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "output": [message],
        "tool_choice": "auto",
    }
    model = FastAPI()
    model.post("/v1/responses")(lambda: {**response, "parallel_tool_calls": True, "tools": []})

    async def collected(folder: Path) -> dict[str, Any]:
        ports, running = {}, []

        def start(name: str, app: Any) -> None:
            server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
            listening = socket.create_server(("127.0.0.1", 0))
            ports[name] = listening.getsockname()[1]
            running.append((server, asyncio.create_task(server.serve(sockets=[listening]))))

        def described(**kinds: str) -> Any:
            return OmegaConf.create(
                {
                    name: {kind: {name: {"host": "127.0.0.1", "port": ports[name]}}}
                    for name, kind in kinds.items()
                }
            )

        client = server_utils.ServerClient.model_construct(
            head_server_config=None, global_config_dict=described()
        )
        start("policy", model)
        for judge, url in servers.items():
            own = {"host": "127.0.0.1", "port": 0, "entrypoint": "app.py"}
            config = example["JudgeConfig"](
                name=f"judge_{judge}", domain="agent", judge_url=f"{url}/verify", **own
            )
            start(
                config.name,
                example["JudgeServer"](config=config, server_client=client).setup_webserver(),
            )
            reference = {"type": "resources_servers", "name": config.name}
            policy = {"type": "responses_api_models", "name": "policy"}
            agent = SimpleAgentConfig(
                name=judge, resources_server=reference, model_server=policy, **own
            )
            start(judge, SimpleAgent(config=agent, server_client=client).setup_webserver())
        client.global_config_dict = described(**dict.fromkeys(ports, "servers"))
        server_utils.set_global_aiohttp_client(server_utils.GlobalAIOHTTPAsyncClientConfig())

        class Helper(rollout_collection.RolloutCollectionHelper):
            def setup_server_client(self, head_server_config: Any = None) -> Any:
                return client

        rows = [("well", case) for case in ("success", "failure", "unscored")] + [
            ("garbage", "success")
        ]
        asked = [
            {
                "responses_create_params": {"input": "buy tea"},
                "agent_ref": {"name": judge},
                "case": f"{judge} {case}",
            }
            | {"trajectory": to_json(trajectory_for(case))}
            for judge, case in rows
        ]
        asked.append({**asked[0], "case": "unreadable", "trajectory": "{"})
        asked.append({**asked[0], "case": "response", "trajectory": None})
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
        config = rollout_collection.RolloutCollectionConfig(
            input_jsonl_fpath=str(folder / "rows.jsonl"),
            output_jsonl_fpath=str(folder / "out.jsonl"),
            upload_rollouts_to_wandb=False,
            resume_from_cache=True,
        )
        found = []
        for _ in range(2):
            await Helper().run_from_config(config)
            kept, failed = (
                [
                    json.loads(line)
                    for line in (folder / f"out{name}.jsonl").read_text().splitlines()
                ]
                for name in ("", "_failures")
            )
            found.append(
                {
                    "kept": {row["case"]: row["reward"] for row in kept},
                    "failed": [
                        [row["case"], row["_ng_failure_class"], row["_ng_failure_judge_error"]]
                        for row in failed
                    ],
                    "metrics": {
                        one["agent_ref"]["name"]: one["key_metrics"].get("mean/reward")
                        for one in json.loads((folder / "out_aggregate_metrics.json").read_text())
                    },
                }
            )
        for server, task in running:
            server.should_exit = True
            await task
        return {"first": found[0], "resumed": found[1]}

    with tempfile.TemporaryDirectory() as folder:
        return in_loop(collected, Path(folder))  # type: ignore[no-any-return]


def swift(servers: dict[str, str]) -> list[list[str]]:
    """Returns the rewards that ms-swift's GRPO gets from a plug-in, twice, because it makes an
    event loop for each call.
    """
    import torch

    class Rows:
        @staticmethod
        def rows_to_batched(rows: list[dict[str, Any]]) -> dict[str, Any]:
            return {key: [row[key] for row in rows] for key in rows[0]}

    stand_in("swift")
    stand_in("swift.utils", get_logger=logging.getLogger)
    stand_in("swift.infer_engine", InferRequest=object)
    stand_in("swift.dataset", RowPreprocessor=Rows)
    stand_in("swift.rl_core")
    stand_in("swift.rl_core.data", GRPOSample=object)
    from swift.rewards import AsyncORM, orms
    from swift.rl_core.grpo_algorithm import compute_rewards_per_func

    class Judge(AsyncORM):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.judge = TRLReward(made({**COMMON, "base_url": servers["well"]}))

        async def __call__(self, completions: list[str], **columns: Any) -> list[float | None]:
            return await self.judge(completions, **columns)

    orms["judge"] = Judge
    told = [{"role": "user", "content": "buy tea"}, {"role": "assistant", "content": "bought"}]
    samples = [
        SimpleNamespace(
            messages=told, to_reward_row=partial(dict, trajectory=to_json(trajectory_for(case)))
        )
        for case in ("success", "failure", "unscored")
    ]
    judge = orms["judge"]()
    return [
        [
            str(float(reward))
            for reward in compute_rewards_per_func(samples, [judge], None, torch.device("cpu"))[
                :, 0
            ]
        ]
        for _ in range(2)
    ]


REQUESTS: dict[str, Callable[[dict[str, str]], Any]] = {
    "OpenRLHF": openrlhf,
    "slime": slime,
    "NeMo-Gym": nemo_gym,
    "ms-swift": swift,
}
