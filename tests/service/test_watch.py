"""The reward watch in a service: canaries, metrics, the status page, and its end."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from prill.errors import UsageError
from prill.io.store import write_labels, write_trajectories
from prill.refine.rewards import Reward, RewardSpec, Watch, WatchSpec, read_watch
from prill.service import Service, ServiceSpec, make_service
from prill.types import EvaluatorInfo, LabelRecord, Task, Trajectory, Usage, Verdict

from .gate import Gate

Record = Callable[..., dict[str, Any]]


class Priced(Gate):
    async def __call__(self, trajectory: Trajectory) -> Verdict:
        return replace(await super().__call__(trajectory), usage=Usage(1, 5, 1, 0, 0.25))


@pytest.fixture
def spec(tmp_path: Path) -> WatchSpec:
    """Three canaries: judged right, wrong and not at all; a second judge that always says
    failure.
    """
    goals = {"good": "success", "bad": "success", "slow": "timeout"}
    write_trajectories(
        tmp_path / "c.jsonl",
        [Trajectory(id=id, task=Task(goal=goal)) for id, goal in goals.items()],
    )
    write_labels(tmp_path / "l.jsonl", [LabelRecord(id=id, success=id != "bad") for id in goals])
    return WatchSpec(
        canaries=tmp_path / "c.jsonl",
        canary_labels=tmp_path / "l.jsonl",
        canary_every=40,
        observations=tmp_path / "w.jsonl",
        student="always-fail",
        window=40,
    )


async def numbers(client: Any) -> dict[str, float]:
    lines = (await client.get("/metrics")).text.splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if not line.startswith("#")
    }


def visit(service: Service) -> Any:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(service.app), base_url="http://127.0.0.1:8700", timeout=60
    )


async def test_a_service_counts_its_canaries(spec: WatchSpec, record: Record) -> None:
    judge = Priced()
    watch = Watch(judge, spec)
    service = make_service(Reward(judge, RewardSpec(on_unscored="raise"), watch), ServiceSpec())
    async with visit(service) as client:
        # rounds begin with the first verdict and the 41st
        for goals in (["failure"] * 41, ["success"] * 39):
            items = [{"trajectory": record(goal, f"{goal}-{i}")} for i, goal in enumerate(goals)]
            answer = (await client.post("/v1/score", json={"items": items})).json()
            assert {one["reward"] for one in answer["results"]} == {float(goals[0] == "success")}
            await asyncio.to_thread(watch.settle)
        found = await numbers(client)
        page = (await client.get("/")).text
        await service.drain()
    counted = {key: value for key, value in found.items() if "canar" in key}
    assert counted == {
        'prill_canaries_total{outcome="right"}': 2.0,
        'prill_canaries_total{outcome="wrong"}': 2.0,
        'prill_canaries_total{outcome="unscored"}': 2.0,
        "prill_canary_rounds_total": 2.0,
        "prill_watch_canary_agreement": 0.5,
        "prill_watch_canaries_turned_wrong": 0.0,
        "prill_watch_canaries_turned_right": 0.0,
        "prill_watch_canaries_unscored": 1.0,
        'prill_watch_alarm{sign="canaries"}': 0.0,
    }
    assert found['prill_watch_alarm{sign="disagreement"}'] == 1.0  # 0 of 40, then 39 of 40
    assert (found["prill_watch_disagreement_first"], found["prill_watch_score_mean_first"]) == (
        0.0,
        0.25,
    )
    assert (found["prill_judge_calls_total"], found["prill_judge_usd_total"]) == (
        80 + 6,
        (80 + 6) / 4,
    )
    assert (
        'prill_verdicts_total{outcome="success"}' in found
        and found['prill_verdicts_total{outcome="success"}'] == 39
    )
    assert (
        "<h2>Reward watch</h2>" in page
        and "1 of 2 are right" in page
        and "! alarm" in page
        and "<script" not in page
    )
    noted = list(read_watch(spec.observations or "", pytest.fail))
    assert sorted(one.kind for one in noted) == ["canary"] * 6 + ["verdict"] * 80


async def test_remembered_answers_count_once(spec: WatchSpec, record: Record) -> None:
    watch = Watch(Gate(), spec)
    service = make_service(Reward(watch.judge, watch=watch))
    async with visit(service) as client:
        for _ in range(3):
            assert (
                await client.post("/rm", json={"prompt": "", "response": "", "label": record()})
            ).json() == 1.0
        await service.drain()
    assert watch.report().verdicts == 1


async def test_no_watch_means_no_section(record: Record) -> None:
    service = make_service(Reward(Gate()))
    async with visit(service) as client:
        await client.post("/rm", json={"prompt": "", "response": "", "label": record()})
        assert "<h2>Reward watch</h2>" not in (await client.get("/")).text
        assert not [key for key in await numbers(client) if re.search("watch|canar", key)]


def test_no_service_on_another_judges_log(spec: WatchSpec) -> None:
    other = Gate()
    other.info = EvaluatorInfo("another", "1")
    watch = Watch(other, spec)
    watch.saw(
        Trajectory(id="t", task=Task(goal="success")),
        Verdict(id="t", success=True, evaluator=other.info),
    )
    watch.close()
    with pytest.raises(UsageError, match="observations of another judge"):
        make_service(Reward(Gate(), watch=Watch(Gate(), spec)))
