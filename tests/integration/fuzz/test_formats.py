"""Recordings of other tools, edited at random: every importer ends, says what is broken, and keeps
what is whole.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from prill.datasets.formats import FORMATS, recognise
from prill.datasets.formats import agents_sdk as agents_sdk_format
from prill.datasets.formats import langsmith as langsmith_format
from prill.datasets.formats import opentelemetry as opentelemetry_format
from prill.io.kinds import parse_object
from prill.io.store import BadLine, encode
from prill.types import LabelRecord, Trajectory
from tests.support.datasets import authors_release
from tests.support.datasets.written.reading import WRITTEN
from tests.support.fuzz.edits import (
    as_json,
    attempt,
    edited_bytes,
    edited_json,
    edited_value,
    edits,
    fuzzed,
)
from tests.unit.datasets.formats import (
    test_agent_eval_refine,
    test_agentrewardbench,
    test_agentrewardbench_webjudge,
    test_aitw,
    test_androidworld,
    test_atif,
    test_messages,
    test_online_mind2web,
    test_openai_batch,
    test_openai_responses,
    test_osworld,
    test_skyvern,
    test_stagehand,
    test_verifiers,
    test_webarena,
)
from tests.unit.papers.mind2web import test_format as test_mind2web_format


@dataclass
class Sample:
    """A recording: `files` are what is edited, each with its edit; `stays` are ids of runs that no
    edit touches, unless it is to a file that is `shared`: that may be a reason to refuse the whole.
    """

    root: Path
    files: list[tuple[Path, Callable[[bytes], bytes]]] = field(default_factory=list)
    stays: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset({"meta.json", "metadata.json"})

    def bytes(self, path: Path) -> None:
        data = path.read_bytes()
        self.files.append((path, lambda change: edited_bytes(data, change)))

    def json(self, path: Path) -> None:
        value = json.loads(path.read_bytes())
        self.files.append((path, lambda change: edited_json(value, change)))

    def rows(self, path: Path, *rows: Any) -> None:
        """JSON lines, of which the second is edited."""
        packed = path.suffix == ".gz"
        path.parent.mkdir(parents=True, exist_ok=True)

        def text(middle: bytes) -> bytes:
            lines = [*map(as_json, rows)]
            data = b"\n".join([lines[0], middle, *lines[2:]]) + b"\n"
            return gzip.compress(data, 1, mtime=0) if packed else data

        path.write_bytes(text(as_json(rows[1])))
        self.files.append((path, lambda change: text(edited_json(rows[1], change))))


def agent_eval_refine(root: Path) -> Sample:
    records = [
        test_agent_eval_refine.record(uid, "click [4]", "type [5] [tea] [1]", "stop [yes]")
        for uid in ("1", "2", "3")
    ]
    for step in records[1]["steps"]:
        step["accessibility_tree"] = "[4] link 'Cart'\n[5] textbox 'Search' required: False"
    sample = Sample(
        test_agent_eval_refine.folder(root, records, platform="web"), stays=frozenset({"1", "3"})
    )
    judged = test_agent_eval_refine.judged
    test_agent_eval_refine.judgements(
        root, "r", judged("1", "ann", "Success"), judged("2", "bob", "Failure", comment="no")
    )

    def log(change: bytes) -> bytes:
        data = as_json([records[0], edited_value(records[1], change), records[2]])
        # All runs are one text: where it is no JSON there is no run to keep.
        return (
            data
            if parse_object(b'{"runs":' + data + b"}")
            else as_json([records[0], 0, records[2]])
        )

    sample.files.append((root / "trajectory_log.json", log))
    sample.json(root / "meta.json")
    sample.bytes(root / "evals/r.jsonl")
    return sample


def released_ios(root: Path) -> Sample:
    """As the authors' programs write it: whole steps of the agent's log, and paths of another
    machine.
    """
    steps = [
        ("tap [[851,520]]", "tap [[851,520]]", "idb ui tap --udid {udid} 331 438"),
        ("task complete", "task complete", "end"),
    ]
    authors_release.ios(
        root / "ios", [(goal, steps) for goal in ("Open it", "Close it", "Call Ann")]
    )
    records = json.loads((root / "ios/trajectory_log.json").read_text())
    sample = Sample(root / "ios", stays=frozenset({records[0]["uid"], records[2]["uid"]}))

    def log(change: bytes) -> bytes:
        data = as_json([records[0], edited_value(records[1], change), records[2]])
        return (
            data
            if parse_object(b'{"runs":' + data + b"}")
            else as_json([records[0], 0, records[2]])
        )

    sample.files.append((root / "ios/trajectory_log.json", log))
    sample.bytes(root / "ios/evals/v0.jsonl")
    return sample


def screenshots(root: Path) -> Sample:
    rows = [{"img": f"/home/someone/images/{i}.png", "cap": f"# Page {i}"} for i in range(3)]
    for i in range(3):
        authors_release.picture(root / f"images/{i}.png", i)
    (root / "final.json").write_bytes(as_json(rows))
    sample = Sample(root, stays=frozenset({"0.png", "2.png"}))

    def pairs(change: bytes) -> bytes:
        data = as_json([rows[0], edited_value(rows[1], change), rows[2]])
        return data if parse_object(b'{"rows":' + data + b"}") else as_json([rows[0], 0, rows[2]])

    sample.files.append((root / "final.json", pairs))
    return sample


def agentlab(root: Path) -> Sample:
    for name in ("one", "two"):
        folder = root / "study" / name
        folder.mkdir(parents=True)
        for i, action in enumerate(["click('4')", "send_msg_to_user('done')", None]):
            observation = {
                "goal": "Buy tea",
                "url": f"http://x/{i}",
                "axtree_txt": f"tree {i}",
                "open_pages_urls": ("a", "b"),
            }
            info = {
                "step": i,
                "obs": observation,
                "action": action,
                "agent_info": {"think": "so", "chat_messages": [("a", 1)]},
            }
            (folder / f"step_{i}.pkl.gz").write_bytes(gzip.compress(pickle.dumps(info, 4), 1))
            (folder / f"screenshot_step_{i}.png").write_bytes(b"picture %d" % i)
        args = {
            "agent_args": {"agent_name": "x"},
            "env_args": {"task_name": "webarena.24", "task_seed": 7},
        }
        (folder / "exp_args.pkl").write_bytes(pickle.dumps(args, 2))
        (folder / "summary_info.json").write_text(
            json.dumps({"cum_reward": 1, "terminated": True, "err_msg": None, "n_steps": 2})
        )
    sample = Sample(root, stays=frozenset({"study/one"}))
    data = gzip.decompress((folder / "step_0.pkl.gz").read_bytes())
    sample.files.append(
        (folder / "step_0.pkl.gz", lambda change: gzip.compress(edited_bytes(data, change), 1))
    )
    sample.bytes(folder / "step_1.pkl.gz")
    sample.bytes(folder / "exp_args.pkl")
    sample.json(folder / "summary_info.json")
    values = pickle.loads(data)

    def odd(change: bytes) -> bytes:
        return gzip.compress(pickle.dumps(edited_value(values, change), 4), 1)

    sample.files.append((folder / "step_2.pkl.gz", odd))
    settings = pickle.loads((folder / "exp_args.pkl").read_bytes())
    sample.files.append(
        (folder / "exp_args.pkl", lambda change: pickle.dumps(edited_value(settings, change), 2))
    )
    return sample


def agentrewardbench_runs(root: Path) -> Sample:
    step = test_agentrewardbench.step
    for name in ("webarena.1", "webarena.2"):
        path = test_agentrewardbench.run(
            root, name, step(0, "click('4')"), step(1, "send_msg_to_user('done')"), step(2, None)
        )
    sample = Sample(root, stays=frozenset({"webarena/gpt/webarena.1"}))
    sample.json(path)
    return sample


def webjudge_runs(root: Path) -> Sample:
    module = test_agentrewardbench_webjudge
    step = module.step(
        "click('4')",
        caption="### Reasoning:\nA shop.\n\n### Score: 2",
        screenshot="images/a.jpg",
        caption_score=2,
    )
    rows = [
        module.row([step, module.step("send_msg_to_user('x')"), module.step(None)], id=name)
        for name in "abc"
    ]
    sample = Sample(root, stays=frozenset({"a", "c"}))
    sample.rows(root / "trajectories.jsonl.gz", *rows)
    labels = [
        {
            "id": name,
            "success": True,
            "annotator": "x",
            "cum_reward": 1.0,
            "webjudge": "Status: success",
        }
        for name in "abc"
    ]
    sample.rows(root / "labels.jsonl.gz", *labels)
    return sample


def aitw(root: Path) -> Sample:
    image = {
        "image/encoded": test_aitw.PIXELS,
        "image/height": 2,
        "image/width": 4,
        "image/channels": 3,
    }
    one = [test_aitw.step("one", 0, 2, **image), test_aitw.step("one", 1, 2, 10)]
    two = [
        test_aitw.step("two", 0, 3, **image),
        test_aitw.step("two", 1, 3, 3),
        test_aitw.step("two", 2, 3, 10),
    ]
    root.mkdir()
    sample = Sample(root, stays=frozenset())
    whole = [test_aitw.example(step) for step in one]
    (root / "google_apps-00000-of-00001").write_bytes(
        test_aitw.tfrecord(*whole, *map(test_aitw.example, two))
    )
    record = test_aitw.example(two[0])

    def inside(change: bytes) -> bytes:
        middle = edited_bytes(record, change)
        return test_aitw.tfrecord(*whole, middle, *map(test_aitw.example, two[1:]))

    def numbers(change: bytes) -> bytes:
        step = dict(two[0])
        name = sorted(step)[change[0] % len(step)]
        step[name] = [
            -1,
            2**63 - 1,
            -(2**63),
            [],
            [0] * 9,
            0.5,
            float("nan"),
            [1e38] * 4,
            "",
            "é" * 99,
        ][change[1] % 10]
        return test_aitw.tfrecord(*whole, test_aitw.example(step), *map(test_aitw.example, two[1:]))

    path = root / "google_apps-00000-of-00001"
    sample.files += [(path, inside), (path, numbers)]
    sample.bytes(path)
    rows = [{**step, "image/encoded": None} for step in two]
    sample.rows(root / "steps.jsonl", *rows)
    return sample


def androidworld(root: Path) -> Sample:
    action = 'Reason: it is off\nAction: {"action_type": "click", "index": 0}'
    swipe = 'Action: {"action_type": "swipe", "direction": "left"}'
    shown = [test_androidworld.SWITCH, test_androidworld.SWITCH]
    steps = [{"i": 0, "action": action, "ui": shown}, {"i": 1, "action": swipe, "ui": []}]
    rows = [
        test_androidworld.row(
            id=name, steps=steps, final_ui=shown, narrative="I did.", run_time_s=3.5
        )
        for name in "abc"
    ]
    sample = Sample(root, stays=frozenset({"a", "c"}))
    sample.rows(root / "trajectories.jsonl", *rows)
    sample.rows(
        root / "labels.jsonl", *({"id": name, "reward": 1.0, "success": True} for name in "abc")
    )
    return sample


def atif(root: Path) -> Sample:
    test_atif.write(root / "one.json", test_atif.document(session_id="one"))
    test_atif.write(root / "two.json", test_atif.document(session_id="two"))
    sample = Sample(root, stays=frozenset({"one"}))
    sample.json(root / "two.json")
    return sample


def messages(root: Path) -> Sample:
    module = test_messages
    calls = [
        module.reply(module.uses(str(i), "computer", input))
        for i, (input, _) in enumerate(module.ACTIONS)
    ]
    whole = [
        module.USER,
        *calls,
        module.result("0", module.says("done"), module.image()),
        module.reply(module.says("Bought.")),
    ]
    sample = Sample(root, stays=frozenset({"a", "c", "run"}))
    sample.rows(
        root / "runs.jsonl",
        *({"id": id, "messages": whole, "tools": [module.COMPUTER]} for id in "abc"),
    )
    (root / "run.json").write_bytes(as_json(whole))
    (root / "a" / "images").mkdir(parents=True)
    sample.rows(root / "a" / "transcript.jsonl", *whole)
    return sample


def browser_use(root: Path) -> Sample:
    root.mkdir()
    old = json.loads((WRITTEN / "browser_use/old.json").read_bytes())
    old["history"][0]["state_message"] = "<user_request>Buy tea</user_request>"
    (root / "two.json").write_bytes(as_json(old))
    history = json.loads((WRITTEN / "browser_use/long.json").read_bytes())["history"]
    rows = [history[0], history[1], history[10]]
    for row in rows:
        row["state_message"] = "<user_request>Buy tea</user_request>" + row["state_message"][-400:]
    one = {"history": [rows[0]]}
    (root / "one.json").write_bytes(as_json(one))
    (root / "three.json").write_bytes(as_json({"history": rows}))
    sample = Sample(root, stays=frozenset({"one"}))
    sample.json(root / "two.json")
    sample.json(root / "three.json")
    return sample


def inspect(root: Path) -> Sample:
    """A log whose entries are edited, one of an archive, and the archive itself."""
    root.mkdir()
    shutil.copy(WRITTEN / "inspect/old-broken.eval", root / "one.eval")
    shutil.copy(WRITTEN / "inspect/old-broken.eval", root / "two.eval")
    sample = Sample(root, stays=frozenset({"one/broken/1/1"}))
    sample.bytes(root / "two.eval")
    with zipfile.ZipFile(WRITTEN / "inspect/old-long.eval") as log:
        (name,) = (name for name in log.namelist() if name.startswith("samples/"))
        long = json.loads(log.read(name))
    kept = {key: value for key, value in long.items() if key not in ("events", "scores")}
    pool = {
        "samples/a_epoch_1/messages/0.json": kept["messages"],
        "samples/a_epoch_1/attachments/0.json": ["x"] * 9,
    }
    shell = {
        "id": "a",
        "epoch": 1,
        "message_refs": [[0, 3], [5, 8]],
        "target": "x",
        "scores": {"s": {"value": {"x": "C"}}},
    }

    def packed(entries: dict[str, bytes]) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in entries.items():
                archive.writestr(name, data)
        return file.getvalue()

    def edited(change: bytes) -> bytes:
        scored = {
            **kept,
            "scores": {"s": {"value": "C", "explanation": "so"}},
            "limit": {"type": "time"},
        }
        entries: dict[str, bytes] = {name: as_json(value) for name, value in pool.items()}
        entries["header.json"] = as_json(
            {"eval": {"model": "m", "task": "t", "created": "2026-01-01T00:00:00+00:00"}}
        )
        entries["samples/long_epoch_1.json"] = as_json(scored)
        entries["samples/a_epoch_1/sample.json"] = as_json(shell)
        name = [*entries][change[-1] % len(entries)]
        return packed({**entries, name: edited_json(json.loads(entries[name]), change)})

    (root / "three.eval").write_bytes(packed({"header.json": b"{}"}))
    sample.files.append((root / "three.eval", edited))
    return sample


def threads(root: Path) -> Sample:
    """Requests of Anthropic's SDK that continue a thread."""
    short, long = (
        [
            json.loads(line)
            for line in (WRITTEN / f"anthropic/{name}.jsonl").read_text().splitlines()
        ]
        for name in ("short", "long")
    )
    short[0]["response"]["id"] = "msg_short"
    sample = Sample(root / "log.jsonl", stays=frozenset({"log"}))
    for middle in range(3):  # a root, a call, a result
        sample.rows(sample.root, *short, long[middle], *long[:middle], *long[middle + 1 :])
    return sample


def mind2web(root: Path) -> Sample:
    module = test_mind2web_format
    root.mkdir()
    (root / "one_0.json").write_text(json.dumps([module.task("one")]))
    (root / "two_1.json").write_text(
        json.dumps([module.conversation("c", module.task("two"), module.task("three"))])
    )
    sample = Sample(root, stays=frozenset({"one"}))
    sample.json(root / "two_1.json")
    return sample


def online_mind2web(root: Path) -> Sample:
    module = test_online_mind2web
    history = [
        "<button> Search -> CLICK",
        "<input> Query -> TYPE: tea",
        "scroll [12]",
        "goto http://x",
        "click at (100, 50)",
    ]
    for id in ("one", "two"):
        module.folder(
            root, "SeeAct", module.result(id, action_history=history, thoughts=["a"] * 5), 2, id
        )
    sample = Sample(root, stays=frozenset({"SeeAct/one"}))
    sample.json(root / "SeeAct/two/result.json")
    return sample


def openai_batch(root: Path) -> Sample:
    sample = Sample(root, stays=frozenset({"a", "c"}))
    sample.rows(root / "in.jsonl", *(test_openai_batch.request(name) for name in "abc"))
    sample.rows(root / "out.jsonl", *(test_openai_batch.reply(name, "Bought.") for name in "abc"))
    return sample


def openai_responses(root: Path) -> Sample:
    module = test_openai_responses
    sample = Sample(root, stays=frozenset({"a", "c", "run"}))
    calls = [
        module.call(*(action for action, _ in module.ACTIONS)),
        module.shown(),
        module.said("Bought."),
    ]
    sample.rows(
        root / "runs.jsonl", *({**module.response(id, *calls), "input": "Buy tea"} for id in "abc")
    )
    (root / "run.json").write_bytes(as_json([module.USER, *calls]))
    return sample


def lines(root: Path, path: Path) -> tuple[Path, list[Any]]:
    """A copy of lines that a package wrote, and their records."""
    root.mkdir(exist_ok=True)
    shutil.copy(path, root)
    return root / path.name, [json.loads(line) for line in path.read_bytes().splitlines()]


def any_row(sample: Sample, path: Path, records: list[Any]) -> None:
    """One of the lines is edited, whichever."""

    def edited(change: bytes) -> bytes:
        at = change[-1] % len(records)
        return b"\n".join(
            edited_json(one, change) if i == at else as_json(one) for i, one in enumerate(records)
        )

    sample.files.append((path, edited))


def agents_sdk(root: Path) -> Sample:
    lines(root, WRITTEN / "agents_sdk/short.jsonl")
    sample = Sample(root, stays=frozenset(item.id for item in agents_sdk_format.load(root)))
    for name in ("broken", "responses"):
        any_row(sample, *lines(root, WRITTEN / f"agents_sdk/{name}.jsonl"))
    return sample


def langsmith(root: Path) -> Sample:
    lines(root, WRITTEN / "langsmith/openai-short.jsonl")
    sample = Sample(root, stays=frozenset(item.id for item in langsmith_format.load(root)))
    for name in ("langchain.json", "openai-broken.jsonl"):
        any_row(sample, *lines(root, WRITTEN / "langsmith" / name))
    path, records = lines(root, WRITTEN / "langsmith/langchain.jsonl")
    any_row(
        sample,
        path,
        [
            record
            for record in records
            if record["run_type"] in ("llm", "tool") or not record.get("parent_run_id")
        ],
    )
    feedback = {
        "id": "f",
        "run_id": records[0]["id"],
        "key": "right",
        "score": 1.0,
        "comment": "so",
    }
    stats = {
        "id": "x",
        "run_type": "llm",
        "inputs": {},
        "feedback_stats": {"a": {"n": 1, "avg": 0.5}},
        "child_runs": records[:1],
    }
    (root / "feedback.jsonl").write_bytes(as_json(stats))
    any_row(sample, root / "feedback.jsonl", [stats, feedback])
    return sample


def opentelemetry(root: Path) -> Sample:
    root.mkdir()
    for name in ("genai-long", "both-pictures", "openinference-short"):
        shutil.copy(WRITTEN / f"otel/{name}.json", root)
    sample = Sample(root)
    (kept,) = (item.id for item in opentelemetry_format.load(root / "openinference-short.json"))
    sample.stays = frozenset({kept})
    sample.json(root / "genai-long.json")
    sample.json(root / "both-pictures.json")
    sample.rows(
        root / "spans.jsonl",
        *map(
            json.loads, (WRITTEN / "otel/spans.jsonl").read_bytes().replace(b"0x", b"").splitlines()
        ),
    )
    messages = [{"role": "user", "parts": [{"type": "text", "content": "Go"}]}]
    event = {
        "name": "gen_ai.evaluation.result",
        "attributes": {"gen_ai.evaluation.score.value": 0.5},
    }
    held = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": messages,
        "gen_ai.output.messages": messages,
    }
    note = {"name": "x", "annotator_kind": "LLM", "result": {"score": 1.0}}
    spans = [
        {
            "traceId": "t",
            "spanId": "a",
            "name": "a",
            "startTimeUnixNano": 1,
            "attributes": held,
            "events": [event],
        },
        {
            "traceId": "t",
            "spanId": "b",
            "attributes": {"openinference.span.kind": "EVALUATOR"},
            "annotations": [note],
        },
    ]
    (root / "flat.json").write_bytes(as_json({"data": spans}))
    sample.json(root / "flat.json")
    return sample


def osworld(root: Path) -> Sample:
    row = test_osworld.row
    actions: list[Any] = [
        "pyautogui.click(50, 50)",
        "pyautogui.typewrite('tea\\n', interval=0.1); pyautogui.hotkey('ctrl', 's')",
    ]
    actions += [
        {"action_type": "CLICK", "parameters": {"x": 5, "y": 6}},
        "pyautogui.dragTo(x=1, y=2)",
        "DONE",
    ]
    source = test_osworld.run(root, [row(i, action) for i, action in enumerate(actions, 1)])
    other = source / "m/os/ex2"
    other.mkdir()
    (other / "traj.jsonl").write_bytes(as_json(row(1, "DONE", screenshot_file=None)) + b"\n")
    (source / "m/args.json").write_text('{"model": "gpt"}')
    (root / "evaluation_examples/examples/os/ex2.json").write_text(
        json.dumps({"id": "ex2", "instruction": "x"})
    )
    sample = Sample(source, stays=frozenset({"m/os/ex2"}))
    sample.rows(
        source / "m/os/ex1/traj.jsonl", *(row(i, action) for i, action in enumerate(actions, 1))
    )
    sample.rows(source / "m/os/ex1/traj.jsonl", row(1, "WAIT"), row(2, actions[1]), row(3, "DONE"))
    sample.bytes(source / "m/os/ex1/result.txt")
    sample.json(source / "m/args.json")
    sample.json(root / "evaluation_examples/examples/os/ex1.json")
    return sample


def playwright(root: Path) -> Sample:
    root.mkdir()
    shutil.copy(WRITTEN / "playwright/short.zip", root / "one.zip")
    shutil.copy(WRITTEN / "playwright/short.zip", root / "two.zip")
    sample = Sample(root, stays=frozenset({"one"}))
    sample.bytes(root / "two.zip")
    with zipfile.ZipFile(WRITTEN / "playwright/long.zip") as trace:
        events = [json.loads(line) for line in trace.read("trace.trace").splitlines()]
        events = [event for event in events if event["type"] not in ("log", "frame-snapshot")]
        frame = next(event["file"] for event in events if event["type"] == "screencast-frame")
        picture = trace.read(frame)

    def edited(change: bytes) -> bytes:
        file = io.BytesIO()
        at = change[-1] % len(events)
        with zipfile.ZipFile(file, "w") as archive:
            lines = [
                edited_json(event, change) if i == at else as_json(event)
                for i, event in enumerate(events)
            ]
            archive.writestr("trace.trace", b"\n".join(lines))
            archive.writestr("trace.network", b"")
            archive.writestr(frame, edited_bytes(picture, change) if at % 2 else picture)
        return file.getvalue()

    (root / "three.zip").write_bytes(edited(bytes(8)))
    sample.files.append((root / "three.zip", edited))
    return sample


def skyvern(root: Path) -> Sample:
    for name in ("one", "two"):
        test_skyvern.long(root / name)
    sample = Sample(root, stays=frozenset({"one"}))
    for path in sorted((root / "two").rglob("*_llm_response_parsed.json")):
        sample.json(path)
    sample.bytes(next((root / "two").rglob("*_llm_prompt.txt")))
    return sample


def stagehand(root: Path) -> Sample:
    for name in ("one", "two"):
        test_stagehand.long(root / name)
    sample = Sample(root, stays=frozenset({"one"}))
    sample.json(root / "two/trajectory.json")
    sample.json(root / "two/scores/result.json")
    sample.bytes(root / "two/scores/result.json")
    return sample


def verifiers(root: Path) -> Sample:
    sample = Sample(root, stays=frozenset({"1/0", "3/0"}))
    sample.rows(
        root / "results.jsonl", *(test_verifiers.row(example_id=number) for number in (1, 2, 3))
    )
    (root / "metadata.json").write_text('{"env_id": "shop", "model": "m", "avg_reward": 1.0}')
    sample.json(root / "metadata.json")
    return sample


def verifiers_traces(root: Path) -> Sample:
    sample = Sample(root / "traces.jsonl", stays=frozenset({"a", "c"}))
    sample.rows(
        root / "traces.jsonl", *({"traces": [test_verifiers.trace(id=name)]} for name in "abc")
    )
    return sample


def webarena(root: Path) -> Sample:
    root.mkdir()
    page, picture = test_webarena.page, base64.b64decode(test_openai_batch.PIXEL.partition(",")[2])
    tree = "Tab 0 (current): Shop\n\n[1] RootWebArea 'Shop' focused: True\n\t[17] link 'Cart'"
    pages = [
        page(tree, "click [17] where [17] is link 'Cart'", image=picture),
        page(tree, "stop [$5]", raw="```stop [$5]```"),
    ]
    for task in (1, 2):
        test_webarena.render(root, str(task), *pages, task=task)
    log = "2023-08-09 15:22:31,123 - INFO - [Config file]: /x/{0}.json\n"
    log += "2023-08-09 15:22:32,1 - INFO - [Result] (PASS) /x/{0}.json\n"
    (root / "merged_log.txt").write_text(log.format(1) + log.format(2))
    sample = Sample(root, stays=frozenset({"webarena.1"}))
    sample.bytes(root / "render_2.html")
    sample.bytes(root / "merged_log.txt")
    return sample


SAMPLES: dict[str, tuple[str, Callable[[Path], Sample]]] = {
    "agent-eval-refine": ("agent-eval-refine", agent_eval_refine),
    "agent-eval-refine as released": ("agent-eval-refine", released_ios),
    "agentlab": ("agentlab", agentlab),
    "agentrewardbench": ("agentrewardbench", agentrewardbench_runs),
    "agentrewardbench-webjudge": ("agentrewardbench-webjudge", webjudge_runs),
    "agents-sdk": ("agents-sdk", agents_sdk),
    "aitw": ("aitw", aitw),
    "androidworld": ("androidworld", androidworld),
    "atif": ("atif", atif),
    "messages": ("messages", messages),
    "messages in threads": ("messages", threads),
    "browser-use": ("browser-use", browser_use),
    "inspect": ("inspect", inspect),
    "langsmith": ("langsmith", langsmith),
    "mind2web": ("mind2web", mind2web),
    "online-mind2web": ("online-mind2web", online_mind2web),
    "openai-batch": ("openai-batch", openai_batch),
    "openai-responses": ("openai-responses", openai_responses),
    "opentelemetry": ("opentelemetry", opentelemetry),
    "osworld": ("osworld", osworld),
    "playwright": ("playwright", playwright),
    "screenshots": ("screenshots", screenshots),
    "skyvern": ("skyvern", skyvern),
    "stagehand": ("stagehand", stagehand),
    "verifiers": ("verifiers", verifiers),
    "verifiers traces": ("verifiers", verifiers_traces),
    "webarena": ("webarena", webarena),
}


def test_every_format_has_a_sample() -> None:
    assert {name for name, _ in SAMPLES.values()} == FORMATS.entries.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_recordings_are_read_or_refused(name: str, tmp_path: Path) -> None:
    format, make = SAMPLES[name]
    module, sample = (
        import_module(FORMATS.entries[format].maker.partition(":")[0]),
        make(tmp_path / "in"),
    )
    originals = {path: path.read_bytes() for path, _ in sample.files}
    assert sample.stays <= {getattr(item, "message", item.id) for item in module.load(sample.root)}

    @fuzzed
    @given(edits)
    def fuzz(change: bytes) -> None:
        path, edit = sample.files[sum(change) % len(sample.files)]
        path.write_bytes(edit(change))
        try:
            assert set(recognise(sample.root)) <= {format}  # what is broken may be of none
            found = attempt(lambda: list(module.load(sample.root)))
            assert all(isinstance(item, Trajectory | BadLine) for item in found or ())
            # it can be written
            assert all(encode(item) for item in found or () if isinstance(item, Trajectory))
            if path.name not in sample.shared:
                assert sample.stays <= {
                    item.id for item in found or () if isinstance(item, Trajectory)
                }
            if hasattr(module, "load_labels"):
                labels = attempt(lambda: list(module.load_labels(sample.root)))
                assert all(isinstance(item, LabelRecord | BadLine) for item in labels or ())
        finally:
            path.write_bytes(originals[path])

    fuzz()
