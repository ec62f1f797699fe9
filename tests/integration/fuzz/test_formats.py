"""Recordings of other tools, edited at random: every importer ends, and says what is broken."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pickle
import shutil
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given

from prill.datasets.formats import FORMATS, recognise
from prill.errors import PrillError
from prill.io.store import BadLine, encode
from prill.types import LabelRecord, Trajectory
from tests.support.datasets import authors_release
from tests.support.datasets.written.reading import WRITTEN
from tests.support.fuzz.edits import as_json, attempt, edited_file, edited_value, edits, fuzzed
from tests.unit.datasets.formats import (
    test_agentrewardbench,
    test_agentrewardbench_webjudge,
    test_aitw,
    test_androidworld,
    test_atif,
    test_online_mind2web,
    test_openai_responses,
    test_osworld,
    test_stagehand,
    test_webarena,
)
from tests.unit.datasets.reading.test_chat import PIXEL
from tests.unit.papers.mind2web import test_format as test_mind2web_format


def written(*names: str) -> Callable[[Path], Path]:
    """Copies of files that the other package wrote."""

    def copy(root: Path) -> Path:
        root.mkdir()
        for name in names:
            shutil.copy(WRITTEN / name, root)
        return root

    return copy


def rows(path: Path, *values: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(as_json(value) + b"\n" for value in values))


def released_ios(root: Path) -> Path:
    """As the authors' programs write it: whole steps of the agent's log, and paths of another
    machine.
    """
    steps = [
        ("tap [[851,520]]", "tap [[851,520]]", "idb ui tap --udid {udid} 331 438"),
        ("task complete", "task complete", "end"),
    ]
    authors_release.ios(root / "ios", [(goal, steps) for goal in ("Open it", "Close it")])
    return root / "ios"


def screenshots(root: Path) -> Path:
    for i in range(3):
        authors_release.picture(root / f"images/{i}.png", i)
    captions = [{"img": f"/home/someone/images/{i}.png", "cap": f"# Page {i}"} for i in range(3)]
    (root / "final.json").write_bytes(as_json(captions))
    return root


STEP = {
    "step": 0,
    "obs": {
        "goal": "Buy tea",
        "url": "http://x/0",
        "axtree_txt": "tree 0",
        "open_pages_urls": ("a", "b"),
    },
    "action": "click('4')",
    "agent_info": {"think": "so", "chat_messages": [("a", 1)]},
}
SETTINGS = {
    "agent_args": {"agent_name": "x"},
    "env_args": {"task_name": "webarena.24", "task_seed": 7},
}


def agentlab(root: Path) -> Path:
    folder = root / "study/one"
    folder.mkdir(parents=True)
    for i, action in enumerate(["click('4')", "send_msg_to_user('done')", None]):
        pickled = pickle.dumps({**STEP, "step": i, "action": action}, 4)
        (folder / f"step_{i}.pkl.gz").write_bytes(gzip.compress(pickled, 1))
        (folder / f"screenshot_step_{i}.png").write_bytes(b"picture %d" % i)
    (folder / "exp_args.pkl").write_bytes(pickle.dumps(SETTINGS, 2))
    (folder / "summary_info.json").write_text(
        json.dumps({"cum_reward": 1, "terminated": True, "err_msg": None, "n_steps": 2})
    )
    return root


def agentrewardbench(root: Path) -> Path:
    step = test_agentrewardbench.step
    test_agentrewardbench.run(
        root,
        "webarena.1",
        step(0, "click('4')"),
        step(1, "send_msg_to_user('done')"),
        step(2, None),
    )
    return root


def webjudge(root: Path) -> Path:
    module = test_agentrewardbench_webjudge
    step = module.step(
        "click('4')",
        caption="### Reasoning:\nA shop.\n\n### Score: 2",
        screenshot="images/a.jpg",
        caption_score=2,
    )
    runs = [
        module.row([step, module.step("send_msg_to_user('x')"), module.step(None)], id=name)
        for name in "ab"
    ]
    rows(root / "trajectories.jsonl", *runs)
    return root


def aitw(root: Path) -> Path:
    image = {
        "image/encoded": test_aitw.png(),
        "image/height": 4,
        "image/width": 4,
        "image/channels": 3,
    }
    steps = [test_aitw.step("one", 0, 2, **image), test_aitw.step("one", 1, 2, 10)]
    root.mkdir()
    (root / "google_apps-00000-of-00001").write_bytes(
        test_aitw.tfrecord(*map(test_aitw.example, steps))
    )
    rows(root / "steps.jsonl", *({**step, "image/encoded": None} for step in steps))
    return root


def androidworld(root: Path) -> Path:
    action = 'Reason: it is off\nAction: {"action_type": "click", "index": 0}'
    swipe = 'Action: {"action_type": "swipe", "direction": "left"}'
    shown = [test_androidworld.SWITCH, test_androidworld.SWITCH]
    steps = [{"i": 0, "action": action, "ui": shown}, {"i": 1, "action": swipe, "ui": []}]
    runs = [test_androidworld.row(id=name, steps=steps, final_ui=shown) for name in "ab"]
    rows(root / "trajectories.jsonl", *runs)
    rows(root / "labels.jsonl", *({"id": id, "reward": 1.0, "success": True} for id in "ab"))
    return root


def atif(root: Path) -> Path:
    test_atif.write(root / "one.json", test_atif.document(session_id="one"))
    return root


def mind2web(root: Path) -> Path:
    module = test_mind2web_format
    root.mkdir()
    (root / "one_0.json").write_text(json.dumps([module.task("one")]))
    (root / "two_1.json").write_text(
        json.dumps([module.conversation("c", module.task("two"), module.task("three"))])
    )
    return root


def online_mind2web(root: Path) -> Path:
    history = ["<button> Search -> CLICK", "<input> Query -> TYPE: tea", "goto http://x"]
    result = test_online_mind2web.result("one", action_history=history, thoughts=["a"] * 3)
    test_online_mind2web.folder(root, "SeeAct", result, 2, "one")
    return root


def openai_responses(root: Path) -> Path:
    module = test_openai_responses
    calls = [
        module.call(*(action for action, _ in module.ACTIONS)),
        module.shown(),
        module.said("Bought."),
    ]
    runs = [{**module.response(id, *calls), "input": "Buy tea"} for id in "ab"]
    rows(root / "runs.jsonl", *runs)
    (root / "run.json").write_bytes(as_json([module.USER, *calls]))
    return root


def osworld(root: Path) -> Path:
    actions: list[object] = [
        "pyautogui.typewrite('tea\\n', interval=0.1); pyautogui.hotkey('ctrl', 's')",
        {"action_type": "CLICK", "parameters": {"x": 5, "y": 6}},
        "pyautogui.dragTo(x=1, y=2)",
        "DONE",
    ]
    source = test_osworld.run(
        root, [test_osworld.row(i, action) for i, action in enumerate(actions, 1)]
    )
    (source / "m/args.json").write_text('{"model": "gpt"}')
    return source


def stagehand(root: Path) -> Path:
    test_stagehand.long(root / "one")
    return root


def webarena(root: Path) -> Path:
    root.mkdir()
    page, picture = test_webarena.page, base64.b64decode(PIXEL.partition(",")[2])
    tree = "Tab 0 (current): Shop\n\n[1] RootWebArea 'Shop' focused: True\n\t[17] link 'Cart'"
    pages = [
        page(tree, "click [17] where [17] is link 'Cart'", image=picture),
        page(tree, "stop [$5]", raw="```stop [$5]```"),
    ]
    test_webarena.render(root, "1", *pages, task=1)
    log = "2023-08-09 15:22:31,123 - INFO - [Config file]: /x/1.json\n"
    log += "2023-08-09 15:22:32,1 - INFO - [Result] (PASS) /x/1.json\n"
    (root / "merged_log.txt").write_text(log)
    return root


SAMPLES: dict[str, Callable[[Path], Path]] = {
    "agent-eval-refine": released_ios,
    "agentlab": agentlab,
    "agentrewardbench": agentrewardbench,
    "agentrewardbench-webjudge": webjudge,
    "agents-sdk": written("agents_sdk/short.jsonl", "agents_sdk/responses.jsonl"),
    "aitw": aitw,
    "androidworld": androidworld,
    "atif": atif,
    "messages": written("anthropic/short.jsonl", "anthropic/messages.json"),
    "browser-use": written("browser_use/short.json", "browser_use/old.json"),
    "inspect": written("inspect/old-broken.eval"),
    "langsmith": written("langsmith/openai-short.jsonl", "langsmith/langchain.jsonl"),
    "mind2web": mind2web,
    "online-mind2web": online_mind2web,
    "openai-responses": openai_responses,
    "opentelemetry": written("otel/genai-short.json", "otel/openinference-short.json"),
    "osworld": osworld,
    "playwright": written("playwright/short.zip"),
    "screenshots": screenshots,
    "stagehand": stagehand,
    "webarena": webarena,
}


def test_every_format_has_a_sample() -> None:
    assert FORMATS.entries.keys() == SAMPLES.keys()


def loader(format: str) -> object:
    return import_module(FORMATS.entries[format].maker.partition(":")[0])


@pytest.mark.parametrize("format", SAMPLES)
def test_recordings_are_read_or_refused(format: str, tmp_path: Path) -> None:
    root = SAMPLES[format](tmp_path / "in")
    module = loader(format)
    originals = {
        path: path.read_bytes() for path in sorted((tmp_path / "in").rglob("*")) if path.is_file()
    }
    whole = list(module.load(root))  # type: ignore[attr-defined]
    assert whole and not any(isinstance(item, BadLine) for item in whole)

    @fuzzed
    @given(edits)
    def fuzz(change: bytes) -> None:
        path = [*originals][sum(change) % len(originals)]
        path.write_bytes(edited_file(originals[path], change))
        try:
            assert set(recognise(root)) <= {format}  # what is broken may be of none
            found = attempt(lambda: list(module.load(root)))  # type: ignore[attr-defined]
            assert all(isinstance(item, Trajectory | BadLine) for item in found or ())
            # it can be written
            assert all(encode(item) for item in found or () if isinstance(item, Trajectory))
            if hasattr(module, "load_labels"):
                labels = attempt(lambda: list(module.load_labels(root)))
                assert all(isinstance(item, LabelRecord | BadLine) for item in labels or ())
        finally:
            path.write_bytes(originals[path])

    fuzz()


def read_all(root: Path, loads: Iterable[Callable[[Path], Iterable[object]]]) -> None:
    recognise(root)
    for load in loads:
        with suppress(PrillError):
            list(load(root))


@pytest.mark.parametrize("format", SAMPLES)
def test_pipe_in_a_recording_is_not_waited_for(format: str, tmp_path: Path) -> None:
    root, module = SAMPLES[format](tmp_path / "in"), loader(format)
    loads = [load for name in ("load", "load_labels") if (load := getattr(module, name, None))]
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        reading = threading.Thread(target=read_all, args=(root, loads), daemon=True)
        reading.start()
        reading.join(20)
        assert not reading.is_alive(), path
        path.unlink()
        path.write_bytes(content)


@pytest.mark.parametrize(("name", "value"), [("step_1.pkl.gz", STEP), ("exp_args.pkl", SETTINGS)])
def test_pickles_of_odd_values_are_read_or_refused(
    name: str, value: object, tmp_path: Path
) -> None:
    root, module = agentlab(tmp_path / "in"), loader("agentlab")
    path = root / "study/one" / name

    @fuzzed
    @given(edits)
    def fuzz(change: bytes) -> None:
        data = pickle.dumps(edited_value(value, change), 4)
        path.write_bytes(gzip.compress(data, 1) if name.endswith(".gz") else data)
        attempt(lambda: list(module.load(root)))  # type: ignore[attr-defined]

    fuzz()
