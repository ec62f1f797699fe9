"""How trajectories travel: JSON with images inside or beside, places in recorded files, prompts
with completions.
"""

import base64
import io
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill import Action, Observation, Step, Task, Trajectory, write_trajectories
from prill.errors import InputError, UsageError
from prill.io.store import BadLine
from prill.refine.rewards import (
    IndexedTrajectories,
    from_value,
    get_column,
    reference,
    serialization,
    single_step,
    to_json,
)


def png(color: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (4, 3), color).save(out, "PNG")
    return out.getvalue()


def recording(id: str = "tea-1") -> Trajectory:
    step = Step(Observation(png("red"), text="a shop"), Action("click", "click button 'Buy'"))
    earlier = Trajectory(id="before", task=Task(goal="log in"), final=Observation(png("blue")))
    task = Task(goal="buy tea", platform="web", earlier=(earlier,))
    return Trajectory(
        id=id,
        task=task,
        steps=(step,),
        final=Observation(png("green")),
        metadata={"screenshot": "data:image/x"},
    )


def pictures(item: object) -> list[bytes]:
    assert isinstance(item, Trajectory)
    return [Path(state.screenshot or "").read_bytes() for state in item.observations]


class Text(str):
    """A text of some library's own, as numpy has."""

    __slots__ = ()


def without_paths(trajectory: Trajectory) -> Any:
    return json.loads(to_json(trajectory))


def test_images_travel_inside_the_json() -> None:
    packed = to_json(recording())
    for value in (packed, packed.encode(), json.loads(packed), Text(packed)):
        item = from_value(value)
        assert pictures(item) == [png("red"), png("green")]
        assert isinstance(item, Trajectory)
        assert without_paths(item) == without_paths(recording())


def test_images_stay_below_a_folder(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "runs" / "t.jsonl", [recording()])
    trajectory = IndexedTrajectories(tmp_path / "runs" / "t.jsonl")["tea-1"]
    packed = to_json(trajectory, root=tmp_path)
    assert str(tmp_path) not in packed
    assert pictures(from_value(packed, root=tmp_path)) == [png("red"), png("green")]
    refused = from_value(packed)
    assert isinstance(refused, BadLine)
    assert "set the folder of the images" in refused.problem


@pytest.mark.parametrize("form", ["runs/t.jsonl#tea-7", {"path": "runs/t.jsonl", "id": "tea-7"}])
def test_places_of_recordings_are_found(tmp_path: Path, form: object) -> None:
    write_trajectories(tmp_path / "runs" / "t.jsonl", [recording(f"tea-{i}") for i in range(9)])
    found = from_value(form, root=tmp_path)
    assert isinstance(found, Trajectory)
    assert found.id == "tea-7"
    assert pictures(found) == [png("red"), png("green")]


def test_what_is_appended_later_is_found(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trajectories(path, [replace(recording(), steps=(), final=None, task=Task(goal="a"))])
    recorded = IndexedTrajectories(path)
    assert recorded["tea-1"].task.goal == "a"
    with path.open("a") as file:
        file.write('no JSON\n{"id": "tea-2", "task": {"goal": "b"}}\n')
    assert recorded["tea-2"].task.goal == "b"
    with pytest.raises(InputError, match=r"no trajectory has the id 'tea-3' \(did you mean"):
        recorded["tea-3"]


def test_a_file_written_again_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    record = '{{"id": "{}", "task": {{"goal": "{}"}}}}\n'
    path.write_text(record.format("a", "1") + record.format("b", "2"))
    recorded = IndexedTrajectories(path)
    assert recorded["b"].task.goal == "2"
    path.write_text(record.format("b", "ask_again") + record.format("a", "and moved"))
    assert (recorded["a"].task.goal, recorded["b"].task.goal) == ("and moved", "ask_again")


def test_threads_find_what_another_one_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "a", "task": {"goal": "g"}}\n')
    inside, further = threading.Event(), threading.Event()
    first = serialization._first

    def slow(path: Path) -> Any:
        inside.set()
        assert further.wait(60)
        return first(path)

    monkeypatch.setattr(serialization, "_first", slow)
    recorded = IndexedTrajectories(path)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(recorded.__getitem__, "a")
        assert inside.wait(60)
        other = pool.submit(recorded.__getitem__, "a")
        wait([other], 0.2)  # it is not to end before
        further.set()
        assert one.result(60).id == other.result(60).id == "a"


@pytest.mark.parametrize("root", [None, "."])
def test_half_a_character_is_told_with_place(root: str | None) -> None:
    """Such as a page's script can make; JSON cannot carry it, and a mark in its place would be
    another text.
    """
    whole = Trajectory(id="t", task=Task(goal="buy tea"))
    step = Step(Observation(text="tea \ud83d"), Action("click"))
    halves = {
        r"\$\.task\.goal": replace(whole, task=Task(goal="buy \ud800")),
        r"\$\.steps\[1\]\.observation\.text": replace(
            whole, steps=(Step(Observation(), Action("wait")), step)
        ),
        r"\$\.metadata\.seen\[0\]": replace(whole, metadata={"seen": ["\udfff"]}),
        r"the key 'k\\ud800'": replace(whole, metadata={"k\ud800": 1}),
        r"\$\.task\.earlier\[0\]\.answer": replace(
            whole, task=Task(goal="g", earlier=(replace(whole, answer="\ud800"),))
        ),
    }
    for place, trajectory in halves.items():
        with pytest.raises(
            InputError, match=f"'t' cannot be written: .* an unpaired surrogate.*{place}"
        ):
            to_json(trajectory, root=root)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "expected a trajectory, got nothing"),
        (3, "expected a trajectory, got a int"),
        ("t.jsonl", "neither the JSON"),
        ("{", "not valid JSON"),
        ('{"id": "a"}', "task"),
        ("../other.jsonl#a", "outside the allowed folder"),
        ("/etc/passwd#a", "outside the allowed folder"),
        ("missing.jsonl#a", "No such file"),
        (".#a", "directory"),
        ("a\0b.jsonl#a", "is not a path"),
        ("half\ud83d.jsonl#a", "is not a path"),
        ({"id": "a", "task": {"goal": "half \ud83d"}}, "cannot be written as JSON"),
        (
            {"id": "a", "task": {"goal": "b"}, "metadata": {"c": object()}},
            "cannot be written as JSON",
        ),
        ("packed.jsonl.gz#a", "decompress it"),
        (
            {"id": "a", "task": {"goal": "b"}, "final": {"screenshot": "../a.png"}},
            "leaves the folder",
        ),
        (
            {"id": "a", "task": {"goal": "b"}, "final": {"screenshot": "data:image/png;base64,§"}},
            r"final\.screenshot",
        ),
        (
            {"id": "a", "task": {"goal": "b"}, "final": {"screenshot": "data:image/png,abc"}},
            "base64",
        ),
    ],
)
def test_what_is_no_trajectory_says_why(tmp_path: Path, value: object, says: str) -> None:
    write_trajectories(tmp_path / "packed.jsonl.gz", [recording("a")])
    write_trajectories(
        tmp_path.parent / "other.jsonl",
        [replace(recording("a"), steps=(), final=None, task=Task(goal="a"))],
    )
    item = from_value(value, root=tmp_path, place="row 3")
    assert isinstance(item, BadLine)
    assert item.place == "row 3"
    assert re.search(says, item.problem), item.problem


def test_missing_column_names_those_there() -> None:
    with pytest.raises(
        UsageError,
        match=r"no column 'trajectory' \(did you mean 'trajectories'\?\); its columns: task, traj",
    ):
        get_column({"trajectories": [], "task": []}, "trajectory")
    assert get_column({"trajectory": [1]}, "trajectory") == [1]


def test_prompt_and_completion_are_one_step() -> None:
    prompt = [
        {"role": "system", "content": "You are an agent."},
        {
            "role": "user",
            "content": [{"type": "image"}, {"type": "text", "text": "What does tea cost?"}],
        },
    ]
    made = single_step(
        prompt, [{"role": "assistant", "content": "$5"}], [Image.new("RGB", (4, 3), "red")]
    )
    assert (made.task.goal, made.answer, len(made.steps)) == ("What does tea cost?", "$5", 1)
    assert made.steps[0].observation.screenshot is not None
    assert made.steps[0].action == Action("answer", value="$5")
    assert (
        made.id
        == single_step(prompt, "$5", [Image.new("RGB", (4, 3), "red")]).id
        != single_step(prompt, "$6").id
    )
    assert single_step("What?", "that").task.goal == "What?"


def test_every_image_of_a_prompt_is_shown() -> None:
    url = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + base64.b64encode(png("red")).decode()},
    }
    inside = single_step(
        [{"role": "user", "content": [url, url, {"type": "text", "text": "Which?"}]}], "this"
    )
    assert pictures(inside) == [png("red")] * 2
    undecoded = single_step("Which?", "this", [{"bytes": png("blue"), "path": None}])
    assert pictures(undecoded) == [png("blue")]


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ([{"role": "system", "content": "x"}], "no user text"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": "https://x/y.png"}]}],
            "no user text|URL",
        ),
        (
            [{"role": "user", "content": [{"image_url": "file:///etc/x"}, {"text": "a"}]}],
            "not fetched",
        ),
        ("half \ud83d", "cannot be serialised"),
    ],
)
def test_prompts_that_cannot_be_judged_say_why(prompt: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        single_step(prompt, "x")


def test_refer_names_path_and_id() -> None:
    assert reference(Path("runs/t.jsonl"), "a#b") == "runs/t.jsonl#a#b"
