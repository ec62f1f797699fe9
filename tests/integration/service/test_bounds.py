"""What strangers and judges can do: memory stays bounded, one item's failure is its own, and the
service always ends.
"""

import asyncio
import base64
import io
import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import prill
from prill.errors import UsageError
from prill.refine.rewards import Reward
from prill.service import ServiceSpec, make_service
from prill.service.admission import AdmissionQueue
from prill.service.guard import find_network
from prill.service.judge_queue import JudgeQueue
from prill.service.memory import ByteBudget
from prill.service.metrics import Metrics
from prill.service.page import status_page
from prill.service.request_parsing import RequestParser
from prill.service.server import make_server
from prill.testing import MockServer
from prill.types import Task, Trajectory, Verdict
from tests.integration.service.test_process import post, refusal, serving, whole
from tests.support.paths import SUPPORT
from tests.support.service.gate import Gate
from tests.support.service.hostile import Hostile, release
from tests.support.service.visiting import Visiting, answered

Record = Callable[..., dict[str, Any]]
HOSTILE = ("--judge", f"{SUPPORT / 'service/hostile.py'}:Hostile")
FOREVER = float("inf")


def peak(pid: int) -> float:
    """The most memory so far, in MB."""
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(lines["VmHWM"].split()[0]) * 1024 / 1e6


def noise(size: int) -> str:
    """A picture of about 3 * size * size bytes, as base64."""
    out = io.BytesIO()
    Image.frombytes("RGB", (size, size), os.urandom(3 * size * size)).save(
        out, "PNG", compress_level=1
    )
    return base64.b64encode(out.getvalue()).decode()


def run(goal: str = "success", id: str = "t", **more: Any) -> dict[str, Any]:
    return {"trajectory": {"id": id, "task": {"goal": goal}, **more}}


def send(url: str, body: bytes) -> int:
    """The status of a request whose body is ready."""
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is read from /proc"
)


@needs_proc
def test_one_picture_is_held_once() -> None:
    """However many steps name it, by a name or by its content."""
    picture = noise(1000)
    with serving(*HOSTILE) as (process, url):
        before = peak(process.pid)
        for name, images in (("shot", {"shot": picture}),):
            step = {"observation": {"screenshot": name}, "action": {"kind": "click"}}
            answer = post(
                f"{url}/v1/score", {"items": [{**run(steps=[step] * 199), "images": images}]}
            )
            assert answer["results"][0]["reward"] == 1.0
        assert peak(process.pid) - before < 100


def test_one_content_has_one_name() -> None:
    """Also as data URLs: what is decoded is counted by content."""
    picture = noise(2)
    size = len(base64.b64decode(picture))
    shot = {"screenshot": f"data:image/png;base64,{picture}"}
    steps = [{"observation": shot, "action": {"kind": "click"}}] * 50
    made = RequestParser(max_image_bytes=size).trajectory(
        {"id": "t", "task": {"goal": "g"}, "steps": steps, "final": shot}
    )
    assert len({seen.screenshot for seen in made.observations}) == 1


@pytest.mark.parametrize(
    ("limit", "words"), [("max_image_bytes", "bytes"), ("max_request_pixels", "megapixels")]
)
async def test_pictures_of_a_request_are_limited(
    limit: str, words: str, visiting: Visiting
) -> None:
    """Together, over all its items; the next request has as much again."""
    pictures = [noise(10) for _ in range(4)]
    most = 3 * len(base64.b64decode(pictures[0])) + 20 if words == "bytes" else 300
    items = [
        run(id=str(number), final={"screenshot": f"data:image/png;base64,{picture}"})
        for number, picture in enumerate(pictures)
    ]
    async with visiting(Gate(), **{limit: most}) as (client, _):
        for _ in range(2):
            results = (await client.post("/v1/score", json={"items": items})).json()["results"]
            assert [one["unscored"] for one in results] == [None, None, None, "input"]
            assert (
                "the images of the request have more than" in results[3]["reason"]
                and words in results[3]["reason"]
            )


@needs_proc
def test_jobs_at_a_hung_judge_hold_little() -> None:
    with serving(*HOSTILE) as (process, url):
        statuses = []
        for number in range(20):
            body = json.dumps(
                {"items": [run("hang", str(number), final={"text": "x" * 20_000_000})]}
            ).encode()
            statuses.append(send(f"{url}/v1/jobs", body))
        assert peak(process.pid) < 400
        assert (
            statuses[:2] == [202, 202] and set(statuses[2:]) <= {202, 503} and statuses[-1] == 503
        )
        # others are still served
        assert post(f"{url}/v1/score", {"items": [run()]})["results"][0]["reward"] == 1.0


@needs_proc
@pytest.mark.parametrize(
    "unit", ["{}", '{"trajectory":{"metadata":{"":0}}}', '{"trajectory":{"a":[[],[]]}}']
)
def test_many_small_values_are_not_built(unit: str) -> None:
    body = b'{"items":[' + b",".join([unit.encode()] * (24_000_000 // (len(unit) + 1))) + b"]}"
    with serving(*HOSTILE) as (process, url):
        before = peak(process.pid)
        assert send(f"{url}/v1/score", body) == 422
        assert peak(process.pid) - before < 150


async def test_values_are_counted_everywhere(visiting: Visiting) -> None:
    many = [0] * 200
    bodies = {
        "/v1/score": {"items": [run(metadata={"a": many})]},
        "/v1/jobs": {"items": [run(metadata={"a": many})]},
        "/get_reward": {"query": ["q"], "prompts": ["p"], "labels": [many]},
        "/rm": {"response": "r", "label": many},
        "/verify": {"responses_create_params": {"input": "g"}, "response": {"output": many}},
    }
    async with visiting(Gate(), max_values=100) as (client, service):
        for path, body in bodies.items():
            answer = await client.post(path, json=body)
            assert (answer.status_code, "the limit is 100" in answer.text) == (422, True), path
        assert service.judging.budget.used == 0


async def test_ids_are_short(visiting: Visiting, record: Record) -> None:
    long = "é" * 501
    labelled = {
        "/rm": {"response": "r", "label": record(id=long)},
        "/get_reward": {"prompts": ["p"], "query": ["q"], "labels": [record(id=long)]},
    }
    async with visiting(Gate()) as (client, service):
        items = [{"trajectory": record(id=long)}, {"path": "x", "id": long}]
        results = (await client.post("/v1/score", json={"items": items})).json()["results"]
        for one in results:
            assert one["unscored"] == "input" and long not in json.dumps(one, ensure_ascii=False)
        for path, body in labelled.items():
            answer = await client.post(path, json=body)
            assert (
                answer.status_code == 422
                and "the limit is 1,000" in answer.text
                and long not in answer.text
            )
        assert (
            await client.post("/rm", json={"response": "r", "label": record(id="é" * 500)})
        ).json() == 1.0
        assert [len(one.id) for one in service.metrics.latest] == [80]


async def test_remembered_verdicts_are_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wordy(Gate):
        async def __call__(self, trajectory: Trajectory) -> Verdict:
            return replace(
                await super().__call__(trajectory),
                reason="x" * (5000 if trajectory.id == "long" else 300),
            )

    monkeypatch.setattr("prill.service.judge_queue.MAX_REMEMBERED_BYTES", 2000)
    gate = Wordy()
    judge_queue = JudgeQueue(Reward(gate))
    for id in ("a", "b", "c", "d", "a", "long", "long", "a"):
        await judge_queue.result(Trajectory(id=id, task=Task(goal="success")), "c", FOREVER)
    assert gate.asked == {"a": 2, "b": 1, "c": 1, "d": 1, "long": 2}
    assert judge_queue._remembered.bytes <= 2000


async def test_results_of_jobs_are_few_bytes(visiting: Visiting, record: Record) -> None:
    async with visiting(Gate(), max_results=1500) as (client, service):
        places = []
        for number in range(4):
            items = [{"trajectory": record(id=f"{number}-{i}")} for i in range(4)]
            places.append(
                f"/v1/jobs/{(await client.post('/v1/jobs', json={'items': items})).json()['id']}"
            )
            await service.judging.finish_jobs()
            assert (await client.get(places[-1])).json()["status"] == "done", (
                "the latest is always there"
            )
        assert (await client.get(places[0])).status_code == 404
        assert service.judging.budget.used == 0


@pytest.mark.parametrize("deed", ["hang", "stubborn", "thread"])
async def test_a_judge_that_hangs_frees_its_slot(deed: str, visiting: Visiting) -> None:
    """And its item has a reason; nothing that waits for it is a verdict."""
    release.clear()
    try:
        async with visiting(Hostile(), concurrency=1, judge_timeout=0.05) as (client, service):
            answer = await client.post(
                "/v1/score", json={"items": [run(deed, "a"), run("success", "b")]}
            )
            told = [(one["id"], one["reward"], one["unscored"]) for one in answer.json()["results"]]
            assert told == [("a", None, "timeout"), ("b", 1.0, None)]
            body = {"response": "r", "label": run(deed, "c")["trajectory"]}
            assert (await client.post("/rm", json=body)).status_code == 502
            assert (service.judge_queue.in_flight, service.judge_queue.waiting) == (0, 0)
    finally:
        release.set()


async def test_hung_threads_do_not_stop_reading(visiting: Visiting) -> None:
    """A judge may take all threads that everybody shares; the service reads large requests in its
    own.
    """
    release.clear()
    shared = min(32, (os.cpu_count() or 1) + 4)
    try:
        async with visiting(Hostile(), concurrency=2 * shared + 1, judge_timeout=60) as (
            client,
            service,
        ):
            hung = asyncio.create_task(
                client.post(
                    "/v1/score",
                    json={"items": [run("thread", str(number)) for number in range(2 * shared)]},
                )
            )
            while service.judge_queue.in_flight < 2 * shared:
                await asyncio.sleep(0)
            items = [run(id="large", final={"text": "x" * 100_000})]
            answer = await asyncio.wait_for(client.post("/v1/score", json={"items": items}), 30)
            assert answer.json()["results"][0]["reward"] == 1.0
            release.set()
            await hung
    finally:
        release.set()


async def test_many_hung_judgements_end_the_trying(
    visiting: Visiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a judge never ends keeps what it was given: so there are no more of them than so
    many.
    """
    monkeypatch.setattr("prill.service.judge_queue.MAX_HUNG", 2)
    release.clear()
    try:
        async with visiting(Hostile(), concurrency=1, judge_timeout=0.02) as (client, service):
            items = [run("stubborn", str(number)) for number in range(6)]
            results = (await client.post("/v1/score", json={"items": items})).json()["results"]
            assert {one["unscored"] for one in results} == {"timeout"}
            assert service.judge_queue.hung == 2 and "2 judgements hang" in results[5]["reason"]
            assert service.judging.budget.used > 0, "what a judge never lets go is still there"
            assert (await client.get("/readyz")).status_code == 503
    finally:
        release.set()


async def test_not_ready_while_all_slots_are_old(visiting: Visiting) -> None:
    gate = Gate(concurrency=2)
    gate.open.clear()
    timeouts = {
        "request_timeout": 0.05,
        "openrlhf_timeout": 0.05,
        "slime_timeout": 0.05,
    }
    async with visiting(gate, **timeouts) as (client, _):
        assert (await client.get("/readyz")).status_code == 200
        for number in range(2):
            assert (await client.get("/readyz")).status_code == 200, "a slot is free"
            answer = await client.post("/v1/score", json={"items": [run(id=str(number))]})
            assert answer.status_code == 503
        async with asyncio.timeout(60):
            while (await client.get("/readyz")).status_code == 200:
                await asyncio.sleep(0.01)
        gate.open.set()
        async with asyncio.timeout(60):
            while (await client.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.01)


async def test_not_ready_while_the_endpoint_is_gone(
    visiting: Visiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any request, and again when it is back; where it is, is nobody's business."""
    monkeypatch.setattr("prill.service.metrics._PROBE_EVERY", 0.0)
    options = {"captioner": "text", "model": "m", "api_key_env": "NONE"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    judge = prill.judge("modular", base_url=f"http://127.0.0.1:{port}/v1", **options)
    async with visiting(judge) as (client, _):
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "judge_unavailable")
        assert str(port) not in answer.text
        assert (await client.get("/healthz")).status_code == 200
    with MockServer() as server:
        async with visiting(prill.judge("modular", base_url=server.base_url, **options)) as (
            client,
            _,
        ):
            assert (await client.get("/readyz")).status_code == 200


async def test_not_ready_while_nothing_is_answered(visiting: Visiting) -> None:
    """Failures of transport are unscored verdicts, not errors; an answer that cannot be read is
    one.
    """

    class Dead(Gate):
        async def __call__(self, trajectory: Trajectory) -> Verdict:
            if trajectory.task.goal != "gone":
                return await super().__call__(trajectory)
            return Verdict(
                id=trajectory.id,
                unscored="transport",
                reason="connection failed",
                evaluator=self.info,
            )

    async with visiting(Dead()) as (client, _):
        for goals, status in (
            (["gone"] * 5, 503),
            (["parse"], 200),
            (["gone"] * 4, 200),
            (["success"], 200),
        ):
            await client.post(
                "/v1/score",
                json={"items": [run(goal, str(number)) for number, goal in enumerate(goals)]},
            )
            assert (await client.get("/readyz")).status_code == status, goals


ODD = ("leave", "interrupt", "close", "cancel", "surrogate", "other", "odd", "nothing", "blind")


@pytest.mark.parametrize("deed", ODD)
async def test_one_item_fails_alone_by_its_judge(deed: str, visiting: Visiting) -> None:
    async with visiting(Hostile()) as (client, service):
        for _ in range(2):  # nothing of it is remembered
            items = [run(id="before"), run(deed, "bad"), run(id="after")]
            answer = await client.post("/v1/score", json={"items": items})
            assert answer.status_code == 200
            results = {one["id"]: one for one in answer.json()["results"]}
            assert results["before"]["reward"] == results["after"]["reward"] == 1.0
            assert (results["bad"]["reward"], results["bad"]["unscored"]) == (None, "transport")
        assert (
            await client.post("/rm", json={"response": "r", "label": items[1]["trajectory"]})
        ).status_code == 503
        assert (
            service.judge_queue.in_flight,
            service.judge_queue.waiting,
            service.judging.budget.used,
        ) == (0, 0, 0)


@pytest.mark.parametrize(
    "item",
    [
        {**run(id="bad"), "images": {"a": 5}},
        {**run(id="bad"), "images": 5},
        {**run(id="bad"), "unknown": 1},
        {"trajectory": {"id": "bad", "task": 5}},
        {"trajectory": [], "id": "bad"},
        {"path": 5, "id": "bad"},
        5,
        None,
        [],
    ],
)
async def test_one_item_fails_alone_by_its_form(item: Any, visiting: Visiting) -> None:
    async with visiting(Gate()) as (client, _):
        answer = await client.post(
            "/v1/score", json={"items": [run(id="before"), item, run(id="after")]}
        )
        assert answer.status_code == 200
        before, bad, after = answer.json()["results"]
        assert (before["reward"], after["reward"]) == (1.0, 1.0)
        assert (bad["reward"], bad["unscored"]) == (None, "input")
        assert bad["id"] == ("bad" if isinstance(item, dict) else "items[1]")


async def test_a_full_disk_is_one_items_failure(
    visiting: Visiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(data: bytes) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("prill.temporary._kept", full)
    items = [
        run(id="bad", final={"screenshot": f"data:image/png;base64,{noise(2)}"}),
        run(id="good"),
    ]
    async with visiting(Gate()) as (client, _):
        bad, good = (await client.post("/v1/score", json={"items": items})).json()["results"]
    assert (bad["reward"], bad["unscored"], good["reward"]) == (None, "transport", 1.0)


STATES = ("idle", "job", "request", "stubborn", "thread", "block", "body", "door")


@pytest.mark.parametrize("state", STATES)
def test_term_ends_in_every_state(state: str) -> None:
    """After the grace period, whatever waits: a judge, a job, a client."""
    deed = state if state in ("stubborn", "thread", "block") else "hang"
    with serving(*HOSTILE, "--grace", "1", "--max-active", "1" if state == "door" else "9") as (
        process,
        url,
    ):
        port = int(url.rpartition(":")[2])
        body = json.dumps({"items": [run(deed)]}).encode()
        lines = [
            "POST /v1/score HTTP/1.1",
            "Host: localhost",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        try:
            if state == "job":
                post(f"{url}/v1/jobs", {"items": [run("hang")]})
            elif state != "idle":
                data = "\r\n".join([*lines, "", ""]).encode() + body
                for connection in connections:
                    connection.sendall(data[:-5] if state == "body" else data)
                wanted = {"door": "prill_requests_outside 1.0", "body": "prill_requests_inside 2.0"}
                while state != "block" and wanted.get(state, "prill_in_flight 1.0") not in metrics(
                    url
                ):
                    pass
            process.send_signal(signal.SIGTERM)
            assert process.wait(25) in (0, 1)  # less than `block` takes
        finally:
            for connection in connections:
                connection.close()


def metrics(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        return list(answer.read().decode().splitlines())


async def test_what_ends_unanswered_is_told(visiting: Visiting) -> None:
    """Who still waits at the end of the grace period gets 503, and a job its results, unscored."""
    gate = Gate(concurrency=1)
    gate.open.clear()
    async with visiting(gate, max_active=1) as (client, service):
        place = (await client.post("/v1/jobs", json={"items": [run(id="job")]})).json()["id"]
        asked = [
            asyncio.create_task(
                client.post("/rm", json={"response": "r", "label": run(id=id)["trajectory"]})
            )
            for id in "ab"
        ]
        while service.admission.waiting < 1 or service.judge_queue.waiting < 1:
            await asyncio.sleep(0)
        await asyncio.wait_for(service.drain(0.02), 30)
        assert [answer.status_code for answer in await asyncio.gather(*asked)] == [503, 503]
        await service.judging.finish_jobs()
        [one] = (await client.get(f"/v1/jobs/{place}")).json()["results"]
        assert (one["reward"], one["unscored"]) == (None, "transport")


async def test_clients_that_are_gone_hold_nothing() -> None:
    """Neither a place nor the judge: what waits for it is not judged."""
    gate = Gate(concurrency=1)
    gate.open.clear()
    spec = ServiceSpec(port=0)
    service = make_service(Reward(gate), spec)
    server = make_server(service, spec)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(server._serve([listening]))
        writers = []
        async with asyncio.timeout(60):
            for number in range(5):
                body = json.dumps({"response": "r", "label": run(id=str(number))["trajectory"]})
                _, writer = await asyncio.open_connection(*listening.getsockname())
                lines = [
                    "POST /rm HTTP/1.1",
                    "Host: localhost",
                    "Content-Type: application/json",
                    f"Content-Length: {len(body)}",
                ]
                writer.write("\r\n".join([*lines, "", body]).encode())
                writers.append(writer)
                while service.admission.active <= number:
                    await asyncio.sleep(0.001)
            while service.judge_queue.in_flight + service.judge_queue.waiting < 5:
                await asyncio.sleep(0.001)
            for writer in writers:
                writer.transport.abort()
            while service.admission.active or service.judge_queue.waiting:
                await asyncio.sleep(0.001)
            # of what is at the judge
            assert answered(service, "/rm", 499) == 5 and service.judging.budget.used > 0
            gate.open.set()
            while service.judge_queue.in_flight:
                await asyncio.sleep(0.001)
            assert gate.asked.total() == 1 and service.judging.budget.used == 0
            server.should_exit = True
            await task


async def test_names_bring_no_more_turns(record: Record) -> None:
    """Clients are told apart by address, whatever they call themselves: one address, one turn."""
    import httpx

    gate = Gate(concurrency=1)
    gate.open.clear()
    service = make_service(Reward(gate), ServiceSpec())

    async def ask(address: str, name: str, id: str) -> None:
        transport = httpx.ASGITransport(service.app, client=(address, 1))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8700", timeout=60
        ) as client:
            body = {"response": "r", "label": record(id=id)}
            answer = await client.post(
                f"/rm?client={name}", json=body, headers={"x-prill-client": name}
            )
            assert answer.status_code == 200

    greedy = [
        asyncio.create_task(ask(f"2001:db8::{i % 9}", f"name{i}", f"greedy{i}")) for i in range(50)
    ]
    async with asyncio.timeout(60):
        while service.judge_queue.waiting < 49:
            await asyncio.sleep(0)
        modest = asyncio.create_task(ask("10.0.0.2", "modest", "modest"))
        while service.judge_queue.waiting < 50:
            await asyncio.sleep(0)
        gate.open.set()
        await asyncio.gather(*greedy, modest)
    assert gate.order.index("modest") <= 2


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
    ],
)
def test_a_network_is_one_client(address: str, network: str) -> None:
    assert find_network(address) == network


async def test_holders_of_tokens_take_turns(record: Record, tmp_path: Path) -> None:
    """Behind a proxy all have one address; each of several tokens is a client."""
    import httpx

    (tmp_path / "tokens").write_text("first-token-of-two\nsecond-token-of-two\n")
    gate = Gate(concurrency=1)
    gate.open.clear()
    service = make_service(Reward(gate), ServiceSpec(token_file=tmp_path / "tokens"))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(service.app), base_url="http://127.0.0.1", timeout=60
    ) as client:
        assert (await client.get("/metrics?key=third-token-of-two")).status_code == 401

        def ask(token: str, id: str) -> asyncio.Task[Any]:
            body = {"response": "r", "label": record(id=id)}
            return asyncio.create_task(
                client.post("/rm", json=body, headers={"authorization": f"Bearer {token}"})
            )

        asked = [ask("first-token-of-two", f"greedy{i}") for i in range(20)]
        async with asyncio.timeout(60):
            while service.judge_queue.waiting < 19:
                await asyncio.sleep(0)
            asked.append(ask("second-token-of-two", "modest"))
            while service.judge_queue.waiting < 20:
                await asyncio.sleep(0)
            gate.open.set()
            assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
    assert gate.order.index("modest") <= 2


async def test_one_client_leaves_memory_to_others() -> None:
    budget = ByteBudget(100)
    admission = AdmissionQueue(100, 100, budget)
    async with admission.admitted("greedy", FOREVER, 60), asyncio.timeout(60):
        waiting = [
            asyncio.create_task(admission.admitted("greedy", FOREVER, 30).__aenter__())
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        assert (admission.active, admission.waiting) == (1, 3)
        async with admission.admitted("modest", FOREVER, 30):
            assert (budget.used, admission.active) == (90, 2)
        assert admission.waiting == 3
    await asyncio.sleep(0)
    assert (budget.used, admission.waiting) == (60, 1)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def test_two_lengths_of_a_body_are_refused() -> None:
    """To somebody on the way the rest may be another request: 400, and nothing of it is
    answered.
    """
    hidden = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    lengths = [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked",
        b"transfer-encoding: chunked\r\ncontent-length: 4",
    ]
    with serving(*HOSTILE) as (_, url):
        for path, both in (
            (path, both) for path in ("/rm", "/healthz", "/metrics") for both in lengths
        ):
            head = (
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            ).encode()
            answer = whole(url, head + both + b"\r\n\r\n0\r\n\r\n" + hidden)
            status, headers, body = refusal(answer)
            assert (status, headers["connection"], body["code"]) == (400, "close", "http"), path
            assert answer.count(b"HTTP/1.1") == 1


def test_a_request_must_fit() -> None:
    with pytest.raises(UsageError, match="max_memory"):
        ServiceSpec(max_body=100_000_000)
    assert ServiceSpec(max_body=100_000_000, max_memory=300_000_000)


async def test_bodies_without_a_length_are_counted(visiting: Visiting) -> None:
    """They hold what has come of them, and are told to come again where there is no room."""

    async def chunks(size: int) -> Any:
        for _ in range(size // 1000):
            yield b" " * 1000

    gate = Gate()
    gate.open.clear()
    headers = {"content-type": "application/json"}
    async with visiting(gate, max_body=40_000, max_values=100, max_memory=70_000) as (
        client,
        service,
    ):
        held = asyncio.create_task(
            client.post("/rm", json={"prompt": "p", "response": "r" * 30_000})
        )
        while service.judge_queue.in_flight < 1:
            await asyncio.sleep(0)
        answer = await client.post("/rm", content=chunks(39_000), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "busy")
        gate.open.set()
        assert (await held).status_code == 200
        # blanks are no JSON
        assert (
            await client.post("/rm", content=chunks(39_000), headers=headers)
        ).status_code == 422
        assert service.judging.budget.used == 0


def test_success_is_of_what_has_a_verdict() -> None:
    metrics = Metrics()
    assert "<strong>–</strong><span>success" in status_page(metrics, "judge")
    for outcome, count in (("success", 3), ("failure", 1), ("unscored", 4)):
        metrics.verdicts.labels(outcome).inc(count)
    assert "<strong>75%</strong><span>success" in status_page(metrics, "judge")
