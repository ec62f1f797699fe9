"""Android in the Wild steps, written here as TFRecord and as JSON, and read back as episodes."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.formats.aitw import load
from prill.datasets.reading.tfrecord import masked_crc, parse_example
from prill.io.store import BadLine
from prill.types import Trajectory

PIXELS = bytes(range(24))  # 2 rows of 4 red-green-blue pixels


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def part(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(record: dict[str, Any], packed: bool = True) -> bytes:
    """The record as a tf.train.Example; with `packed` off, numbers stand one by one, as older
    writers put them.
    """
    entries = b""
    for name, value in record.items():
        values = value if isinstance(value, list) else [value]
        if values and isinstance(values[0], float):
            coded = [struct.pack("<f", v) for v in values]
            feature = part(
                2, part(1, b"".join(coded)) if packed else b"".join(b"\x0d" + v for v in coded)
            )
        elif values and isinstance(values[0], int):
            numbers = [varint(v) for v in values]
            feature = part(
                3, part(1, b"".join(numbers)) if packed else b"".join(b"\x08" + v for v in numbers)
            )
        else:
            texts = [v if isinstance(v, bytes) else v.encode() for v in values]
            feature = part(1, b"".join(part(1, v) for v in texts))
        entries += part(1, part(1, name.encode()) + part(2, feature))
    return part(1, entries)


def tfrecord(*examples: bytes) -> bytes:
    out = b""
    for data in examples:
        length = struct.pack("<Q", len(data))
        out += (
            length
            + struct.pack("<I", masked_crc(length))
            + data
            + struct.pack("<I", masked_crc(data))
        )
    return out


def step(episode: str, i: int, length: int, action: int = 4, **more: Any) -> dict[str, Any]:
    gesture = action == 4
    return {
        "episode_id": episode,
        "step_id": i,
        "episode_length": length,
        "goal_info": f"Goal of {episode}",
        "current_activity": "com.shop",
        "device_type": "pixel_4",
        "android_api_level": 30,
        "image/ui_annotations_positions": [0.5, 0.25, 0.25, 0.5, 0.0, 0.0, 0.125, 0.125],
        "image/ui_annotations_text": ["Buy", ""],
        "image/ui_annotations_ui_types": ["TEXT", "ICON_HOME"],
        "results/action_type": action,
        "results/type_action": "tea" if action == 3 else "",
        "results/yx_touch": [0.75, 0.25] if gesture else [-1.0, -1.0],
        "results/yx_lift": [0.75, 0.25] if gesture else [-1.0, -1.0],
        **more,
    }


def png() -> bytes:
    from PIL import Image

    out = BytesIO()
    Image.new("RGB", (4, 2), "red").save(out, "PNG")
    return out.getvalue()


def ids(items: list[Trajectory | BadLine]) -> list[str]:
    return [item.id if isinstance(item, Trajectory) else f"bad: {item.message}" for item in items]


def test_the_checksum_is_the_published_one() -> None:
    # CRC-32C of "123456789" is 0xE3069283; TFRecord rotates it right by 15 bits and adds a
    # constant.
    crc = 0xE3069283
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    # The empty record as TensorFlow writes it.
    assert tfrecord(b"") == b"\x00\x00\x00\x00\x00\x00\x00\x00)\x03\x98\x07\xd8\xea\x82\xa2"


@pytest.mark.parametrize("packed", [True, False])
def test_features_of_three_kinds_are_read(packed: bool) -> None:
    record = {
        "text": ["a", "ü"],
        "bytes": b"\x00\xff",
        "floats": [0.5, -1.0],
        "ints": [3, -1, 2**62],
        "none": [],
    }
    assert parse_example(example(record, packed)) == {
        "text": [b"a", "ü".encode()],
        "bytes": [b"\x00\xff"],
        "floats": [0.5, -1.0],
        "ints": [3, -1, 2**62],
        "none": [],
    }


@pytest.mark.parametrize("packing", [gzip.compress, bytes], ids=["gzip", "plain"])
def test_tfrecord_episode_has_points_in_x_y(tmp_path: Path, packing: Any) -> None:
    image = {"image/encoded": PIXELS, "image/height": 2, "image/width": 4, "image/channels": 3}
    swipe = {"results/yx_lift": [0.25, 0.25]}
    steps = [
        step("e", 0, 4, **image),
        step("e", 1, 4, **swipe),
        step("e", 2, 4, 3),
        step("e", 3, 4, 10),
    ]
    path = tmp_path / "google_apps-00000-of-00001"
    path.write_bytes(packing(tfrecord(*map(example, steps))))
    (trajectory,) = load(path, images=tmp_path / "images")
    assert isinstance(trajectory, Trajectory)
    assert (
        trajectory.task.id,
        trajectory.task.goal,
        trajectory.task.platform,
        trajectory.task.site,
        trajectory.agent,
    ) == ("", "Goal of e", "android", "google_apps", "human")
    assert [
        (s.action.kind, s.action.point, s.action.end_point, s.action.value)
        for s in trajectory.steps
    ] == [
        ("click", (0.25, 0.75), None, None),
        ("swipe", (0.25, 0.75), (0.25, 0.25), None),
        ("type", None, None, "tea"),
        ("stop", None, None, None),
    ]
    assert (
        trajectory.steps[0].observation.text
        == 'TEXT "Buy" at (0.50, 0.62)\nICON_HOME "" at (0.06, 0.06)'
    )
    from PIL import Image

    with Image.open(str(trajectory.steps[0].observation.screenshot)) as picture:
        assert (picture.size, picture.tobytes()) == ((4, 2), PIXELS)
    of_a_step = [(0.25, 0.5, 0.5, 0.25), (0.0, 0.0, 0.125, 0.125)]
    assert trajectory.metadata == {"device": "pixel_4", "boxes": [of_a_step] * 4}


def test_lift_is_a_tap_near_and_a_swipe_far(tmp_path: Path) -> None:
    lifts = [
        step("e", i, 2, **{"results/yx_lift": [0.75, 0.25 + away]})
        for i, away in enumerate((0.03, 0.045))
    ]
    (tmp_path / "x.json").write_text(json.dumps(lifts), encoding="utf-8")
    (trajectory,) = load(tmp_path / "x.json")
    assert isinstance(trajectory, Trajectory)
    assert [s.action.kind for s in trajectory.steps] == ["click", "swipe"]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda rows: rows,
        lambda rows: [rows],
        lambda rows: {"steps": rows},
        lambda rows: [{key: [value] for key, value in row.items()} for row in rows],
        lambda rows: [
            {
                **row,
                "image/ui_annotations_positions": [[0.5, 0.25, 0.25, 0.5], [0, 0, 0.125, 0.125]],
            }
            for row in rows
        ],
    ],
    ids=["steps", "episodes", "object", "lists of one", "nested boxes"],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_shapes_give_equal_episodes(tmp_path: Path, wrap: Any, indent: int | None) -> None:
    rows = [
        step("e", 0, 2, **{"image/encoded": base64.b64encode(png()).decode()}),
        step("e", 1, 2, 6),
    ]
    (tmp_path / "x.json").write_text(json.dumps(wrap(rows), indent=indent), encoding="utf-8")
    (trajectory,) = load(tmp_path / "x.json", images=tmp_path / "images")
    assert isinstance(trajectory, Trajectory)
    assert [s.action.kind for s in trajectory.steps] == ["click", "home"]
    assert Path(str(trajectory.steps[0].observation.screenshot)).read_bytes() == png()
    assert str(trajectory.steps[0].observation.text).startswith('TEXT "Buy" at (0.50, 0.62)')


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda data: data[:-7], "record 2: the file ends in the middle of it"),
        (lambda data: data[:-1] + b"\x00", "record 2: the checksum of the data is wrong"),
        (lambda data: data + b"\x05", "record 3: not a TFRecord"),
        (lambda data: data + tfrecord(b"\x0b"), "record 3: not a tf.train.Example"),
    ],
    ids=["cut", "flipped", "trailing", "no example"],
)
def test_damage_costs_what_comes_after_it(tmp_path: Path, damage: Any, problem: str) -> None:
    (tmp_path / "x").write_bytes(
        damage(tfrecord(example(step("a", 0, 1)), example(step("b", 0, 1))))
    )
    item_ids = ids(list(load(tmp_path / "x")))
    assert item_ids[0] == "a"
    assert problem in item_ids[-1]
