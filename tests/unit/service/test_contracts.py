"""What each client sees, and that nothing without a verdict ever is a reward."""

import asyncio
import base64
import gc
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

import prill
from prill.refine.rewards import RewardSpec
from prill.refine.rewards.service import app
from prill.refine.rewards.service.request_parsing import RequestParser
from prill.temporary import _own_folder
from prill.testing import MockServer
from tests.support.service.gate import Gate
from tests.support.service.visiting import counted, item, requests, run, visiting

UNSCORED = {"timeout": 502, "parse": 502, "input": 422, "no_evidence": 422, "gone": 503, "bug": 503}


def picture(size: int = 2, colour: tuple[int, int, int] = (0, 0, 0)) -> str:
    out = io.BytesIO()
    Image.new("RGB", (size, size), colour).save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


async def test_scores_come_in_order_with_reasons() -> None:
    items: list[Any] = [item(goal, goal) for goal in ("success", "failure", "timeout", "gone")]
    items += [{"trajectory": {"id": "broken"}}, {"path": "x.jsonl", "id": "y"}, {}]
    items += [{**item(id="bad"), "images": {"a": 5}}, {"trajectory": [], "id": "bad"}]
    items += [{**item(id="bad"), "unknown": 1}, {"path": 5, "id": "bad"}, 5]
    async with visiting(Gate()) as (client, _):
        answer = await client.post("/v1/score", json={"items": items})
    assert answer.status_code == 200
    results = answer.json()["results"]
    told = [(one["id"], one["reward"], one["abstained"], one["unscored"]) for one in results]
    assert told == [
        ("success", 1.0, False, None),
        ("failure", 0.0, False, None),
        ("timeout", None, True, "timeout"),
        ("gone", None, True, "transport"),
        ("broken", None, True, "input"),
        ("y", None, True, "input"),
        ("items[6]", None, True, "input"),
        *[(f"items[{index}]", None, True, "input") for index in range(7, 12)],
    ]
    assert "task" in results[4]["reason"] and "media root" in results[5]["reason"]


async def test_full_disk_is_one_items_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(data: bytes) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("prill.temporary._kept", full)
    items = [item(id="bad", final={"screenshot": picture()}), item(id="good")]
    async with visiting(Gate()) as (client, _):
        bad, good = (await client.post("/v1/score", json={"items": items})).json()["results"]
    assert (bad["reward"], bad["unscored"], good["reward"]) == (None, "transport", 1.0)


@pytest.mark.parametrize("goal", UNSCORED)
async def test_no_verdict_is_never_a_reward(goal: str) -> None:
    bodies = requests(json.dumps(run(goal)))
    bodies["/get_reward"] = {
        "query": ["q", "q"],
        "prompts": ["p", "p"],
        "labels": [run("success", "other"), run(goal)],
    }
    async with visiting(Gate()) as (client, _):
        for path in ("/get_reward", "/rm"):
            answer = await client.post(path, json=bodies[path])
            assert (answer.status_code, set(answer.json())) == (UNSCORED[goal], {"error"})
            assert "secret words" not in answer.text
        row = (await client.post("/verify", json=bodies["/verify"])).json()
        assert (row["reward"], row["_ng_failure_class"], row["row"]) == (0.0, "judge_failed", 7)
        assert row["_ng_failure_judge_error"]
        again = (await client.post("/verify", json={**row, "trajectory": run()})).json()
        assert again["reward"] == 1.0 and not [key for key in again if key.startswith("_ng")]


async def test_number_can_stand_for_no_verdict() -> None:
    bodies = requests(run("timeout"))
    async with visiting(Gate(), RewardSpec(on_unscored="value", value=-0.5)) as (client, _):
        rlhf = (await client.post("/get_reward", json=bodies["/get_reward"])).json()
        assert (rlhf["rewards"], rlhf["scores"]) == ([-0.5], [0.0])
        assert rlhf["extra_logs"]["unscored"] == [1.0]
        assert (await client.post("/rm", json=bodies["/rm"])).json() == -0.5
        row = (await client.post("/verify", json=bodies["/verify"])).json()
        assert (row["reward"], "_ng_failure_class" in row) == (-0.5, False)
        answer = await client.post("/v1/score", json={"items": [item("timeout")]})
        [one] = answer.json()["results"]
        assert (one["reward"], one["abstained"], one["unscored"]) == (-0.5, True, "timeout")


async def test_trainers_get_their_forms() -> None:
    spec = RewardSpec(kind="score", length_penalty=0.5)
    labels = [run("success", "a"), json.dumps(run("failure", "b"))]
    batch = {"query": ["q", "q"], "prompts": ["p", "p"], "labels": labels}
    async with visiting(Gate(), spec) as (client, _):
        body = (await client.post("/get_reward", json=batch)).json()
        slime = requests(labels[1])["/rm"]
        assert (await client.post("/rm", json=slime)).json() == -0.25
        table = (await client.post("/rm?detail=1", json=slime)).json()
    assert (body["rewards"], body["scores"]) == ([0.25, -0.25], [0.75, 0.25])
    assert {len(values) for values in body["extra_logs"].values()} == {2}
    assert body["extra_logs"]["length_penalty"] == [-0.5, -0.5]
    assert (table["reward"], table["judge_score"], table["unscored"]) == (-0.25, 0.25, 0.0)


async def test_plain_label_has_the_text_judged() -> None:
    gate = Gate()
    chat = [{"role": "user", "content": "asked"}]
    async with visiting(gate) as (client, _):
        for label in (None, "42", "see #3"):
            body = requests(label)["/rm"]
            assert (await client.post("/rm", json=body)).json() == 1.0
            assert (await client.post("/rm", json={**body, "prompt": chat})).json() == 1.0
    assert len(gate.asked) == 1  # the same prompt and response each time


async def test_responses_are_judged_as_their_converter_reads_them() -> None:
    seen = {"type": "computer_call_output", "output": {"image_url": picture()}}
    look = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I look."}]}
    output = [
        {**seen, "call_id": "0"},
        look,
        {"type": "computer_call", "call_id": "1", "action": {"type": "click", "x": 1, "y": 0}},
        {**seen, "call_id": "1"},
        {"type": "function_call", "call_id": "2", "name": "add", "arguments": '{"what": "tea"}'},
        {"type": "function_call_output", "call_id": "2", "output": "added"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Ok"}],
        },
    ]
    asked = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Buy tea"}]}]}
    row = {"responses_create_params": asked, "response": {"output": output}, "uuid": "u"}
    judged = []

    class Looks(Gate):
        async def __call__(self, trajectory: Any) -> Any:
            judged.append(trajectory)
            return await super().__call__(trajectory)

    async with visiting(Looks()) as (client, _):
        answer = (await client.post("/verify", json=row)).json()
        said = {
            "responses_create_params": {"input": "Buy tea"},
            "response": {"output": output[-1:]},
        }
        assert (await client.post("/verify", json=said)).json()["reward"] == 1.0
        for asked in ({}, {"input": 5}, {"input": {"a": 1}}):
            unasked = {"responses_create_params": asked, "response": {"output": []}}
            assert "no user text" in (await client.post("/verify", json=unasked)).text
    answer.pop("reward_components")
    assert answer == {**row, "reward": 1.0}
    done, text = judged
    kinds = [(step.action.kind, bool(step.observation.screenshot)) for step in done.steps]
    assert kinds == [("click", True), ("other", True), ("answer", False)]
    assert (done.task.goal, done.answer, done.steps[0].thought) == ("Buy tea", "Ok", "I look.")
    assert done.steps[0].action.point == (0.5, 0.0) and done.steps[2].observation.text == "added"
    assert (text.task.goal, text.answer, len(text.steps)) == ("Buy tea", "Ok", 1)


@pytest.mark.parametrize("junk", [b"1" * 5000, b"1e400", b'"\xff"', b'"\\ud800"', b"[" * 100_000])
async def test_fields_nobody_reads_break_nothing(junk: bytes) -> None:
    row = b'{"responses_create_params": {"input": "g"}, "response": {"output": []}, "row": %s}'
    async with visiting(Gate()) as (client, _):
        headers = {"content-type": "application/json"}
        answer = await client.post("/verify", content=row % junk, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "input")


async def test_kept_replies_are_shared_with_score(tmp_path: Path) -> None:
    record = run(final={"text": "Order placed. truth=success"})
    with MockServer() as server:
        options = {"captioner": "text", "model": "m", "base_url": server.base_url}
        options |= {"cache": str(tmp_path), "api_key_env": "NONE"}
        judge = prill.judge("modular", **options)
        trajectory = msgspec.convert(record, prill.Trajectory)
        [verdict] = await asyncio.to_thread(prill.score, [trajectory], judge)
        async with visiting(prill.judge("modular", **options)) as (client, _):
            answer = await client.post("/v1/score", json={"items": [{"trajectory": record}]})
        assert server.stats().requests == 1
    [result] = answer.json()["results"]
    assert (result["success"], result["key"], result["source"]) == (True, verdict.key, "judged")


@pytest.mark.parametrize(
    ("limits", "shot", "words"),
    [
        ({"max_images": 1}, picture(), "more than 1 images"),
        ({"max_pixels": 3}, picture(), "an image of 2x2 pixels"),
        ({"max_image_bytes": 100}, picture(), "more than 100 bytes"),
        ({}, "http://169.254.169.254/a.png", "not fetched"),
    ],
)
async def test_pictures_are_limited_everywhere(
    limits: dict[str, int], shot: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "RequestParser", lambda *_: RequestParser(**limits))

    def bodies(shot: str) -> dict[str, Any]:
        """Each request with the picture twice."""
        seen, part = {"screenshot": shot}, {"type": "image_url", "image_url": shot}
        steps = [{"observation": seen, "action": {"kind": "click"}}]
        other = {"screenshot": picture(colour=(9, 9, 9)) if shot.startswith("data") else shot}
        record = run(steps=steps, final=other)
        output = [
            {"type": "computer_call", "call_id": "1", "action": {"type": "wait"}},
            {"type": "computer_call_output", "call_id": "1", "output": {"image_url": shot}},
        ] * 2
        chat = [{"role": "user", "content": [{"type": "text", "text": "g"}, part, part]}]
        return {
            "/v1/score": {"items": [{"trajectory": record}]},
            "/get_reward": requests(record)["/get_reward"],
            "/rm": {"prompt": chat, "response": "r"},
            "/verify": {"responses_create_params": {"input": "g"}, "response": {"output": output}},
        }

    gate = Gate()
    async with visiting(gate) as (client, _):
        for path, body in bodies(shot).items():
            answer = await client.post(path, json=body)
            assert answer.status_code == (200 if path == "/v1/score" else 422), path
            assert words in answer.text, path
    assert not gate.asked
    monkeypatch.setattr(app, "RequestParser", partial(RequestParser, max_pixels=4))
    async with visiting(gate, max_images=2) as (client, _):
        for path, body in bodies(picture()).items():
            assert (await client.post(path, json=body)).status_code == 200, path


async def test_faults_of_a_judge_lose_no_request() -> None:
    """Whoever asks again gets the right reward, and nobody ever a 0 that is none."""
    with MockServer(server_error=0.1) as server:
        options = {"captioner": "text", "model": "m", "api_key_env": "NONE", "concurrency": 8}
        judge = prill.judge("modular", base_url=server.base_url, retries=0, **options)
        async with visiting(judge) as (client, service):

            async def insist(number: int) -> int:
                truth = number % 3 != 0
                page = {"text": f"Order {number}. truth={'success' if truth else 'failure'}"}
                body = requests(run(f"Buy {number}", f"r{number}", final=page))["/rm"]
                for refused in range(10):
                    answer = await client.post("/rm", json=body)
                    if answer.status_code == 200:
                        assert answer.json() == float(truth)
                        return refused
                    code = answer.json()["error"]["code"]
                    assert (answer.status_code, code) == (502, "transport")
                raise AssertionError("never answered")

            refused = sum(await asyncio.gather(*map(insist, range(100))))
            assert refused > 0 and server.stats().requests == 100 + refused
            for outcome, count in (("success", 66), ("failure", 34), ("unscored", refused)):
                assert counted(service, "verdicts_total", outcome=outcome) == count


async def test_many_requests_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither objects nor the files of pictures, however long the service runs."""
    monkeypatch.setattr("prill.refine.rewards.service.judgements.MAX_REMEMBERED", 10)
    async with visiting(Gate()) as (client, service):

        async def ask(numbers: range) -> int:
            for number in numbers:
                shot = {"screenshot": picture(colour=(number % 256, number // 256, 1))}
                goal = ("success", "failure", "timeout", "bug", "input")[number % 5]
                body = requests(run(goal, f"r{number}", final=shot))["/rm"]
                await client.post("/rm", json=body)
            gc.collect()
            return len(gc.get_objects())

        before = await ask(range(100))  # more than what is remembered
        files = len(list(Path(_own_folder()).iterdir()))
        after = await ask(range(100, 300))
        assert after - before < 150, "of 200 requests; what is remembered alone would be more"
        assert len(list(Path(_own_folder()).iterdir())) <= files
        state = service.judgements
        assert state.active == state.in_flight == state.waiting == 0


@pytest.mark.parametrize(
    ("path", "limit"),
    [("/v1/score", ""), ("/verify", ""), ("/get_reward", "OPENRLHF"), ("/rm", "SLIME")],
)
async def test_each_client_has_its_own_time_limit(
    path: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert app._OPENRLHF_SECONDS < 180 and app._SLIME_SECONDS < 120, "what their clients wait"
    if limit:
        monkeypatch.setattr(app, f"_{limit}_SECONDS", 0.05)
    gate = Gate()
    gate.open.clear()
    body = {"/v1/score": {"items": [item()]}, **requests(run())}[path]
    async with visiting(gate, request_timeout=60 if limit else 0.05) as (client, service):
        answer = await asyncio.wait_for(client.post(path, json=body), 30)
        assert (answer.status_code, int(answer.headers["retry-after"]) >= 1) == (503, True)
        gate.open.set()
        assert (await client.post(path, json=body)).status_code == 200
        assert gate.asked == {"t": 1}  # the work went on meanwhile, and was not begun again
        assert service.judgements.active == 0
