"""What requests bring: images inline or below the root, and nothing from anywhere else."""

import base64
import gzip
import io
import os
import re
import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill import write_trajectories
from prill.errors import InputError
from prill.refine.rewards.service.request_parsing import RequestParser
from prill.types import Observation, Task, Trajectory
from tests.support.service.gate import Gate
from tests.support.service.visiting import requests, visiting


def png(width: int = 4, height: int = 4) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(out, "PNG")
    return out.getvalue()


def bomb() -> bytes:
    """A picture whose header promises 100,000 x 100,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


def hidden_bomb(kind: bytes, head: bytes) -> bytes:
    """A small picture with a compressed text or profile of 3 MB beside it."""
    whole = png()
    start = whole.index(b"IDAT") - 4
    data = kind + head + zlib.compress(bytes(3_000_000))
    return (
        whole[:start]
        + struct.pack(">I", len(data) - 4)
        + data
        + struct.pack(">I", zlib.crc32(data))
        + whole[start:]
    )


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def shown(screenshot: str) -> dict[str, Any]:
    return {"id": "t", "task": {"goal": "g"}, "final": {"screenshot": screenshot}}


def image_of(trajectory: Trajectory) -> bytes:
    assert trajectory.final and trajectory.final.screenshot
    return Path(trajectory.final.screenshot).read_bytes()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "shot.png").write_bytes(png())
    (tmp_path / "secret.png").write_bytes(png(8, 8))
    runs = [
        Trajectory(id=id, task=Task(goal="g"), final=Observation(str(folder / "shot.png")))
        for id in ("a", "b")
    ]
    write_trajectories(folder / "runs.jsonl", runs)
    return folder


def test_images_come_inline_by_name_or_path(root: Path) -> None:
    parser = RequestParser(root)
    data = png()
    assert image_of(parser.trajectory(shown(f"data:image/png;base64,{text(data)}"))) == data
    assert image_of(parser.trajectory(shown("one"), {"one": text(data)})) == data
    assert image_of(parser.trajectory(shown("shot.png"))) == (root / "shot.png").read_bytes()


def test_recordings_are_found_by_id(root: Path) -> None:
    parser = RequestParser(root)
    assert image_of(parser.recorded("runs.jsonl", "b")) == (root / "shot.png").read_bytes()
    for label in (
        "runs.jsonl#b",
        {"path": "runs.jsonl", "id": "b"},
        '{"path": "runs.jsonl", "id": "b"}',
    ):
        found = parser.of_value(label)
        assert found is not None and found.id == "b"
    assert parser.of_value("the answer is #3") is None
    with pytest.raises(InputError, match="give the `id`"):
        parser.of_value("runs.jsonl")
    with pytest.raises(InputError, match="no trajectory has the id 'c'") as error:
        parser.recorded("runs.jsonl", "c")
    assert str(root) not in str(error.value)


@pytest.mark.parametrize(
    "path",
    [
        "../secret.png",
        "/etc/passwd",
        "link.png",
        "linked/secret.png",
        "no.png",
        ".",
        "a\0b",
        "~",
        "",
    ],
)
def test_no_path_leaves_the_root(root: Path, path: str) -> None:
    (root / "link.png").symlink_to(root.parent / "secret.png")
    (root / "linked").symlink_to(root.parent)
    parser = RequestParser(root)
    if path:
        with pytest.raises(InputError) as error:
            parser.trajectory(shown(path))
        assert str(root.parent) not in str(error.value)
    with pytest.raises(InputError) as error:
        parser.recorded(path, "a")
    assert str(root.parent) not in str(error.value)


def test_a_recording_shows_nothing_outside(root: Path) -> None:
    """Also not by a link that stands beside it."""
    (root / "link.png").symlink_to(root.parent / "secret.png")
    (root / "sly.jsonl").write_text(
        '{"id": "s", "task": {"goal": "g"}, "final": {"screenshot": "link.png"}}\n'
    )
    with pytest.raises(InputError, match="leaves the folder"):
        RequestParser(root).recorded("sly.jsonl", "s")


async def test_no_request_reads_outside(root: Path) -> None:
    """Whatever a contract lets name a file; neither what stands there nor where it is comes
    back.
    """
    (root.parent / "secret.jsonl").write_text('{"id": "s", "task": {"goal": "hidden words"}}\n')
    (root / "link.jsonl").symlink_to(root.parent / "secret.jsonl")
    (root / "link.png").symlink_to(root.parent / "secret.png")
    gate, outside = Gate(), f"{root.parent}/secret.jsonl"
    async with visiting(gate, media_root=root) as (client, _):
        for place in ("../secret.jsonl", "link.jsonl", outside, "x/../../secret.jsonl"):
            picture = place.replace("jsonl", "png")
            bodies = [("/v1/score", {"items": [{"path": place, "id": "s"}]})]
            for value in (f"{place}#s", {"path": place, "id": "s"}, shown(picture)):
                bodies += requests(value).items()
            for path, body in bodies:
                answer = await client.post(path, json=body)
                assert answer.status_code == (200 if path == "/v1/score" else 422), (path, body)
                # what the client said itself
                told = answer.text.replace(place, "").replace(picture, "")
                assert re.search("media root|leaves the folder", told), (path, body)
                assert "hidden" not in told and str(root.parent) not in told, (path, body)
    assert not gate.asked


def test_links_inside_the_root_are_followed(root: Path) -> None:
    (root / "link.png").symlink_to("shot.png")
    assert (
        image_of(RequestParser(root).trajectory(shown("link.png")))
        == (root / "shot.png").read_bytes()
    )


def test_a_pipe_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe.png")
    with pytest.raises(InputError, match="no such file"):
        RequestParser(root).trajectory(shown("pipe.png"))


def test_without_a_root_there_are_no_paths(tmp_path: Path) -> None:
    for path in ("shot.png", "/etc/hostname"):
        with pytest.raises(InputError):
            RequestParser().trajectory(shown(path))
        with pytest.raises(InputError, match="without a media root"):
            RequestParser().recorded(path, "a")


@pytest.mark.parametrize(
    ("screenshot", "words"),
    [
        ("http://169.254.169.254/latest", "not fetched"),
        ("file:///etc/passwd", "not fetched"),
        ("data:image/png,plain", "base64"),
        ("data:image/png;base64,%%%", "not base64"),
        (f"data:image/png;base64,{text(b'<svg/>')}", "not an image"),
        (f"data:image/png;base64,{text(bomb())}", "100000"),
        (
            f"data:image/png;base64,{text(hidden_bomb(b'zTXt', b'k' + bytes(2)))}",
            "Decompressed data too large",
        ),
        (
            f"data:image/png;base64,{text(hidden_bomb(b'iCCP', b'k' + bytes(2)))}",
            "Decompressed data too large",
        ),
        (f"data:image/png;base64,{text(png(100, 101))}", "limit is 0.01"),
    ],
)
def test_images_that_cannot_be_used_are_told(screenshot: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        RequestParser(max_pixels=10_000).trajectory(shown(screenshot))


def test_images_are_counted() -> None:
    shot = {"screenshot": f"data:image/png;base64,{text(png())}"}
    steps = [{"observation": shot, "action": {"kind": "click"}}] * 3
    with pytest.raises(InputError, match=r"more than 2 images.*steps\[2\]"):
        RequestParser(max_images=2).trajectory({"id": "t", "task": {"goal": "g"}, "steps": steps})


def test_deep_brackets_are_one_clear_error() -> None:
    nested: Any = {}
    for _ in range(400):
        nested = {"a": nested}
    record = {"id": "t", "task": {"goal": "g"}, "steps": [nested]}
    with pytest.raises(InputError):
        RequestParser().trajectory(record)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([{"image_url": f"data:image/png;base64,{text(png())}"}] * 3, "more than 2 images"),
        ([{"image_url": f"data:image/png;base64,{text(png(20, 20))}"}], "an image of 20x20 pixels"),
        ([{"image_url": "data:image/png;base64,AAAA"}], "is not an image"),
        ([{"image": {"path": "/etc/hostname"}}], "send it inline"),
        ([{"image": 5}], "send it inline"),
    ],
)
def test_images_of_a_chat_have_the_same_limits(parts: list[dict[str, Any]], words: str) -> None:
    prompt = [{"role": "user", "content": [{"type": "text", "text": "Buy tea"}, *parts]}]
    with pytest.raises(InputError, match=words):
        RequestParser(max_images=2, max_pixels=100).answered(prompt, "Done.")


async def test_large_and_named_files_are_read_beside_the_loop(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the service's own threads, because judges may hang in the shared ones."""
    read_in = []
    answered = RequestParser.answered

    def noting(self: RequestParser, *given: Any) -> Trajectory:
        read_in.append(threading.current_thread())
        return answered(self, *given)

    monkeypatch.setattr(RequestParser, "answered", noting)
    for folder, size in ((root, 10), (None, 100_000), (None, 10)):
        async with visiting(Gate(), media_root=folder) as (client, _):
            body = {"prompt": "p", "response": "r" * size}
            assert (await client.post("/rm", json=body)).status_code == 200
    own = [thread.name.startswith("prill-service") for thread in read_in]
    assert own == [True, True, False]


def test_one_content_is_kept_once() -> None:
    """However many steps name it, by a name or as a data URL: what is decoded is counted once."""
    data = text(png())
    for shot, images in ((f"data:image/png;base64,{data}", {}), ("shot", {"shot": data})):
        seen = {"screenshot": shot}
        steps = [{"observation": seen, "action": {"kind": "click"}}] * 50
        record = {"id": "t", "task": {"goal": "g"}, "steps": steps, "final": seen}
        made = RequestParser(max_image_bytes=len(png())).trajectory(record, images)
        assert len({one.screenshot for one in made.observations}) == 1


@pytest.mark.parametrize("label", ["runs.jsonl.gz#b", "runs.jsonl", "nowhere.jsonl#b"])
def test_label_of_a_recording_is_no_answer(label: str, root: Path) -> None:
    (root / "runs.jsonl.gz").write_bytes(gzip.compress((root / "runs.jsonl").read_bytes()))
    with pytest.raises(InputError):
        RequestParser(root).of_value(label)
