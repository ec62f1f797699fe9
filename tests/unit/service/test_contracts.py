"""What each trainer's client sees, and that nothing without a verdict ever is a reward."""

import asyncio
import base64
import gc
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

import prill
from prill.refine.rewards import RewardSpec
from prill.service import ServiceSpec
from prill.service.metrics import counts
from prill.temporary import _own_folder
from prill.testing import MockServer
from tests.support.service.gate import Gate
from tests.support.service.visiting import Visiting

Record = Callable[..., dict[str, Any]]
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="  # noqa: E501
UNSCORED = {"timeout": 502, "parse": 502, "input": 422, "no_evidence": 422, "gone": 503, "bug": 503}


def openrlhf(*labels: Any) -> dict[str, Any]:
    return {
        "query": ["asked answered"] * len(labels),
        "prompts": ["asked "] * len(labels),
        "labels": list(labels),
    }


def slime(label: Any) -> dict[str, Any]:
    return {"prompt": "asked", "response": "answered", "label": label}


def nemo(trajectory: Any) -> dict[str, Any]:
    asked = {"responses_create_params": {"input": "asked"}, "response": {"output": []}}
    return {**asked, "trajectory": trajectory, "row": 7}


async def test_scores_come_in_order_with_reasons(visiting: Visiting, record: Record) -> None:
    async with visiting(Gate()) as (client, _):
        items = [
            {"trajectory": record(goal, goal)} for goal in ("success", "failure", "timeout", "gone")
        ]
        items += [{"trajectory": {"id": "broken"}}, {"path": "x.jsonl", "id": "y"}, {}]
        answer = await client.post("/v1/score", json={"items": items})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [(one["id"], one["reward"], one["abstained"], one["unscored"]) for one in results] == [
        ("success", 1.0, False, None),
        ("failure", 0.0, False, None),
        ("timeout", None, True, "timeout"),
        ("gone", None, True, "transport"),
        ("broken", None, True, "input"),
        ("y", None, True, "input"),
        ("items[6]", None, True, "input"),
    ]
    assert "task" in results[4]["reason"] and "media root" in results[5]["reason"]


@pytest.mark.parametrize("goal", UNSCORED)
async def test_no_verdict_is_never_a_reward(goal: str, visiting: Visiting, record: Record) -> None:
    label = json.dumps(record(goal))
    async with visiting(Gate()) as (client, _):
        rlhf = await client.post(
            "/get_reward", json=openrlhf(json.dumps(record("success", "other")), label)
        )
        rm = await client.post("/rm", json=slime(label))
        row = (await client.post("/verify", json=nemo(label))).json()
    assert (rlhf.status_code, rm.status_code) == (UNSCORED[goal], UNSCORED[goal])
    for answer in (rlhf, rm):
        assert set(answer.json()) == {"error"}
        assert "secret words" not in answer.text
    assert (row["reward"], row["_ng_failure_class"], row["row"]) == (0.0, "judge_failed", 7)
    assert row["_ng_failure_judge_error"]


async def test_a_number_can_stand_for_no_verdict(visiting: Visiting, record: Record) -> None:
    spec = RewardSpec(on_unscored="value", value=-0.5)
    async with visiting(Gate(), spec) as (client, _):
        rlhf = (await client.post("/get_reward", json=openrlhf(record("timeout")))).json()
        assert (rlhf["rewards"], rlhf["scores"], rlhf["extra_logs"]["unscored"]) == (
            [-0.5],
            [0.0],
            [1.0],
        )
        assert (await client.post("/rm", json=slime(record("timeout")))).json() == -0.5
        row = (await client.post("/verify", json=nemo(record("timeout")))).json()
        assert (
            row["reward"],
            row["reward_components"]["unscored"],
            "_ng_failure_class" in row,
        ) == (-0.5, 1.0, False)
        [one] = (
            await client.post("/v1/score", json={"items": [{"trajectory": record("timeout")}]})
        ).json()["results"]
        assert (one["reward"], one["abstained"], one["unscored"]) == (-0.5, True, "timeout")


async def test_openrlhf_gets_its_lists(visiting: Visiting, record: Record) -> None:
    spec = RewardSpec(kind="score", length_penalty=0.5)
    async with visiting(Gate(), spec) as (client, _):
        answer = await client.post(
            "/get_reward", json=openrlhf(record("success", "a"), json.dumps(record("failure", "b")))
        )
    body = answer.json()
    assert (body["rewards"], body["scores"]) == ([0.25, -0.25], [0.75, 0.25])
    assert {len(values) for values in body["extra_logs"].values()} == {2}
    assert body["extra_logs"]["length_penalty"] == [-0.5, -0.5]


async def test_a_plain_label_has_the_text_judged(visiting: Visiting) -> None:
    gate = Gate()
    async with visiting(gate) as (client, _):
        for label in (None, "42", "see #3"):
            assert (await client.post("/get_reward", json=openrlhf(label))).json()["rewards"] == [
                1.0
            ]
        chat = [{"role": "user", "content": "asked "}]
        assert (
            await client.post("/rm", json={"prompt": chat, "response": "answered", "label": "42"})
        ).json() == 1.0
    assert len(gate.asked) == 1  # the same prompt and response each time


async def test_slime_gets_a_number_or_a_table(visiting: Visiting, record: Record) -> None:
    async with visiting(Gate()) as (client, _):
        assert (await client.post("/rm", json=slime(record()))).json() == 1.0
        table = (await client.post("/rm?detail=1", json=slime(record("failure", "f")))).json()
    assert (table["reward"], table["judge_score"], table["unscored"]) == (0.0, 0.25, 0.0)


async def test_nemo_rows_come_back_whole(visiting: Visiting) -> None:
    shot = PIXEL
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I look."}]},
        {
            "type": "computer_call",
            "call_id": "1",
            "action": {"type": "click", "x": 1, "y": 0, "button": "left"},
        },
        {
            "type": "computer_call_output",
            "call_id": "1",
            "output": {"type": "computer_screenshot", "image_url": shot},
        },
        {
            "type": "computer_call",
            "call_id": "2",
            "action": {"type": "drag", "path": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]},
        },
        {
            "type": "computer_call_output",
            "call_id": "2",
            "output": {"type": "computer_screenshot", "image_url": shot},
        },
        {"type": "function_call", "call_id": "3", "name": "add", "arguments": '{"what": "tea"}'},
        {"type": "function_call_output", "call_id": "3", "output": "added"},
        {"type": "message", "content": [{"type": "output_text", "text": "Done."}]},
    ]
    asked = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Buy tea"}]}]}
    row = {"responses_create_params": asked, "response": {"output": output}, "uuid": "u"}
    seen = []

    class Looks(Gate):
        async def __call__(self, trajectory: Any) -> Any:
            seen.append(trajectory)
            return await super().__call__(trajectory)

    async with visiting(Looks()) as (client, _):
        answer = (await client.post("/verify", json=row)).json()
    assert {**row, "reward": 1.0} == {
        key: value for key, value in answer.items() if key != "reward_components"
    }
    [trajectory] = seen
    kinds = [(step.action.kind, bool(step.observation.screenshot)) for step in trajectory.steps]
    assert kinds == [("click", False), ("drag", True), ("other", True), ("answer", False)]
    assert (trajectory.task.goal, trajectory.answer, trajectory.steps[0].thought) == (
        "Buy tea",
        "Done.",
        "I look.",
    )
    assert (
        trajectory.steps[1].action.end_point == (1.0, 1.0)
        and trajectory.steps[3].observation.text == "added"
    )


async def test_a_judged_row_has_no_old_failure(visiting: Visiting) -> None:
    row = {"responses_create_params": {"input": "Buy tea"}, "response": {"output": []}}
    async with visiting(Gate()) as (client, _):
        failed = (
            await client.post(
                "/verify", json={**row, "trajectory": {"id": "t", "task": {"goal": "parse"}}}
            )
        ).json()
        assert failed["_ng_failure_class"] == "judge_failed"
        again = (await client.post("/verify", json={**failed, "trajectory": None})).json()
    assert again["reward"] == 1.0 and not [key for key in again if key.startswith("_ng")]


@pytest.mark.parametrize("junk", [b"1" * 5000, b"1e400", b'"\xff"', b'"\\ud800"', b"[" * 100_000])
async def test_fields_nobody_reads_break_nothing(junk: bytes, visiting: Visiting) -> None:
    row = (
        b'{"responses_create_params": {"input": "g"}, "response": {"output": []}, "row": '
        + junk
        + b"}"
    )
    async with visiting(Gate()) as (client, _):
        answer = await client.post(
            "/verify", content=row, headers={"content-type": "application/json"}
        )
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "input")


async def test_places_off_the_screen_are_no_points(visiting: Visiting) -> None:
    far = (
        b'{"type": "computer_call", "action": {"type": "click", "x": 1' + b"0" * 400 + b', "y": 1}}'
    )
    shot = msgspec.json.encode({"type": "computer_call_output", "output": {"image_url": PIXEL}})
    row = (
        b'{"responses_create_params": {"input": "g"}, "response": {"output": ['
        + shot
        + b","
        + far
        + b"]}}"
    )
    async with visiting(Gate()) as (client, _):
        answer = await client.post(
            "/verify", content=row, headers={"content-type": "application/json"}
        )
    assert (answer.status_code, answer.json()["reward"]) == (200, 1.0)


async def test_kept_replies_are_shared_with_score(
    visiting: Visiting, record: Record, tmp_path: Path
) -> None:
    with MockServer() as server:
        options = {
            "captioner": "text",
            "model": "m",
            "base_url": server.base_url,
            "cache": str(tmp_path),
            "api_key_env": "NONE",
        }
        page = {"text": "Order placed. truth=success"}
        run = msgspec.convert(record(final=page), prill.Trajectory)
        [verdict] = await asyncio.to_thread(prill.score, [run], prill.judge("modular", **options))
        async with visiting(prill.judge("modular", **options)) as (client, _):
            answer = await client.post(
                "/v1/score", json={"items": [{"trajectory": record(final=page)}]}
            )
        assert server.stats().requests == 1
    [result] = answer.json()["results"]
    assert (result["success"], result["key"], result["source"]) == (True, verdict.key, "judged")


async def test_jobs_are_answered_later(visiting: Visiting, record: Record) -> None:
    gate = Gate()
    gate.open.clear()
    async with visiting(gate, max_jobs=1) as (client, service):
        begun = await client.post(
            "/v1/jobs", json={"items": [{"trajectory": record()}, {"trajectory": {}}]}
        )
        place = f"/v1/jobs/{begun.json()['id']}"
        assert (begun.status_code, begun.json()["status"]) == (202, "running")
        assert (
            await client.post("/v1/jobs", json={"items": [{"trajectory": record()}]})
        ).status_code == 503
        gate.open.set()
        await asyncio.wait_for(service.judging.finish_jobs(), 30)
        done = (await client.get(place)).json()
        assert (done["status"], done["finished"]) == ("done", 2)
        assert [one["reward"] for one in done["results"]] == [1.0, None]
        assert (
            await client.post("/v1/jobs", json={"items": [{"trajectory": record()}]})
        ).status_code == 202
        assert (await client.get(place)).status_code == 404  # the finished one made room


async def test_an_end_waits_for_jobs(visiting: Visiting, record: Record) -> None:
    gate = Gate()
    gate.open.clear()
    async with visiting(gate) as (client, service):
        body = {"items": [{"trajectory": record()}]}
        place = f"/v1/jobs/{(await client.post('/v1/jobs', json=body)).json()['id']}"
        ending = asyncio.create_task(service.drain())
        while not service.admission.closed:
            await asyncio.sleep(0)
        assert (await client.get(place)).json()["status"] == "running"
        assert (await client.post("/v1/jobs", json=body)).status_code == 503
        assert not ending.done()
        gate.open.set()
        await asyncio.wait_for(ending, 30)
        assert (await client.get(place)).json()["results"][0]["reward"] == 1.0


def shown(picture: str) -> dict[str, dict[str, Any]]:
    """A request of each contract with that picture, twice."""
    seen, part = {"screenshot": picture}, {"type": "image_url", "image_url": picture}
    run = {
        "id": "t",
        "task": {"goal": "g"},
        "steps": [{"observation": seen, "action": {"kind": "click"}}],
        "final": seen,
    }
    chat = [{"role": "user", "content": [{"type": "text", "text": "g"}, part, part]}]
    output = [
        {"type": "computer_call", "action": {}},
        {"type": "computer_call_output", "output": {"image_url": picture}},
    ] * 2
    return {
        "/v1/score": {"items": [{"trajectory": run}]},
        "/get_reward": openrlhf(run),
        "/rm": {"prompt": chat, "response": "r"},
        "/verify": {"responses_create_params": {"input": "g"}, "response": {"output": output}},
    }


def four_pixels() -> str:
    out = io.BytesIO()
    Image.new("RGB", (2, 2)).save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


@pytest.mark.parametrize(
    ("limits", "picture", "words"),
    [
        ({"max_images": 1}, four_pixels(), "more than 1 images"),
        ({"max_pixels": 3}, four_pixels(), "an image of 2x2 pixels"),
        ({}, "http://169.254.169.254/a.png", "not fetched"),
    ],
)
async def test_pictures_are_limited_everywhere(
    limits: dict[str, int], picture: str, words: str, visiting: Visiting
) -> None:
    gate = Gate()
    async with visiting(gate, **limits) as (client, _):
        for path, body in shown(picture).items():
            answer = await client.post(path, json=body)
            assert answer.status_code == (200 if path == "/v1/score" else 422), path
            assert words in answer.text, path
    assert not gate.asked
    async with visiting(gate, max_images=2, max_pixels=4) as (client, _):
        for path, body in shown(four_pixels()).items():
            assert (await client.post(path, json=body)).status_code == 200, path


async def test_faults_of_a_judge_lose_no_request(visiting: Visiting) -> None:
    """Whoever asks again gets the right reward, and nobody ever a 0 that is none."""
    with MockServer(server_error=0.1) as server:
        judge = prill.judge(
            "modular",
            captioner="text",
            model="m",
            base_url=server.base_url,
            api_key_env="NONE",
            retries=0,
            concurrency=8,
        )
        async with visiting(judge, max_active=16) as (client, service):

            async def insist(number: int) -> int:
                truth = number % 3 != 0
                page = {"text": f"Order {number}. truth={'success' if truth else 'failure'}"}
                run = {"id": f"r{number}", "task": {"goal": f"Buy {number}"}, "final": page}
                for refused in range(10):
                    answer = await client.post("/rm", json=slime(run))
                    if answer.status_code == 200:
                        assert answer.json() == float(truth)
                        return refused
                    assert (answer.status_code, answer.json()["error"]["code"]) == (
                        502,
                        "transport",
                    )
                raise AssertionError("never answered")

            refused = sum(await asyncio.gather(*(insist(number) for number in range(100))))
            assert refused > 0 and server.stats().requests == 100 + refused, (
                "nothing was judged twice"
            )
            assert counts(service.metrics.verdicts) == {
                "success": 66,
                "failure": 34,
                "unscored": refused,
            }


async def test_many_requests_leave_nothing_behind(
    visiting: Visiting, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither objects nor the files of pictures: memory stays as it is, however long the service
    runs.
    """
    monkeypatch.setattr("prill.service.judge_queue.MAX_REMEMBERED", 10)
    async with visiting(Gate()) as (client, service):

        async def ask(numbers: range) -> int:
            for number in numbers:
                out = io.BytesIO()
                Image.new("RGB", (2, 2), (number % 256, number // 256, 1)).save(out, "PNG")
                shot = {
                    "screenshot": f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"  # noqa: E501
                }
                goal = ("success", "failure", "timeout", "bug", "input")[number % 5]
                await client.post(
                    f"/rm?client={number}", json=slime(record(goal, f"r{number}", final=shot))
                )
            gc.collect()
            return len(gc.get_objects())

        before = await ask(range(100))  # more than what the page and the queue remember
        files = len(list(Path(_own_folder()).iterdir()))
        after = await ask(range(100, 300))
        assert after - before < 150, "of 200 requests; what is remembered alone would be more"
        assert len(list(Path(_own_folder()).iterdir())) <= files
    assert sum(counts(service.metrics.verdicts).values()) > 0
    assert (
        service.admission.active
        == service.judge_queue.in_flight
        == service.judge_queue.waiting
        == 0
    )


@pytest.mark.parametrize(
    ("path", "setting"),
    [
        ("/v1/score", "request_timeout"),
        ("/verify", "request_timeout"),
        ("/get_reward", "openrlhf_timeout"),
        ("/rm", "slime_timeout"),
    ],
)
async def test_each_client_has_its_own_patience(
    path: str, setting: str, visiting: Visiting, record: Record
) -> None:
    bodies = {"/v1/score": {"items": [{"trajectory": record()}]}, "/verify": nemo(record())}
    bodies |= {"/get_reward": openrlhf(record()), "/rm": slime(record())}
    gate = Gate()
    gate.open.clear()
    async with visiting(gate, **{setting: 0.05}) as (client, _):
        # the others are held for longer
        answer = await asyncio.wait_for(client.post(path, json=bodies[path]), 60)
    assert (answer.status_code, int(answer.headers["retry-after"]) >= 1) == (503, True)
    spec = ServiceSpec()
    assert spec.openrlhf_timeout < 180 and spec.slime_timeout < 120, "what their clients wait"


async def test_a_held_request_gets_503_and_when(visiting: Visiting, record: Record) -> None:
    gate = Gate()
    gate.open.clear()
    async with visiting(gate, request_timeout=0.05, openrlhf_timeout=0.05, slime_timeout=0.05) as (
        client,
        service,
    ):
        bodies = {
            "/v1/score": {"items": [{"trajectory": record()}]},
            "/get_reward": openrlhf(record()),
            "/rm": slime(record()),
        }
        for path, body in bodies.items():
            answer = await client.post(path, json=body)
            assert (answer.status_code, int(answer.headers["retry-after"]) >= 1) == (503, True)
        gate.open.set()
        assert (await client.post("/rm", json=slime(record()))).json() == 1.0
        assert gate.asked == {"t": 1}  # the work went on meanwhile, and was not begun again
    assert service.admission.active == 0
