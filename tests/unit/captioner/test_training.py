"""Rows to train a captioner on: what is left out and why, what people decided, and the format."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image as Picture
from PIL import ImageDraw

from prill.captioner.cache import image_id
from prill.captioner.files import Caption, CaptionLog
from prill.captioner.training import DECISIONS, TrainingSpec, TrainingTally, training_data
from prill.captioner.vision import VLMCaptioner
from prill.errors import TruncatedError
from prill.protocols import Image, Message
from prill.testing import ScriptedModel

LONG = "# Page\n" + "- a button with the word Save on it, and a field that is empty\n" * 3
ENGLISH = (
    "Welcome to the shop. Your cart is empty: choose from all of our products and pay with "
    "your card."
)


def draw(path: Path, seed: int, word: str = "") -> str:
    """A page of blocks that its seed decides, with a word on it."""
    picture = Picture.new("RGB", (320, 240), "white")
    pen = ImageDraw.Draw(picture)
    for i in range(12):
        x, y = (seed * 7919 + i * 104729) % 280, (seed * 6007 + i * 7907) % 200
        pen.rectangle([x, y, x + 60, y + 30], fill=(seed * 50 % 256, i * 20, 120))
    pen.text((4, 4), word, fill="black")
    picture.save(path)
    return path.name


def write(folder: Path, states: Sequence[tuple[str, str]]) -> Path:
    rows = [
        {
            "id": f"t{i}",
            "task": {"goal": "a secret goal"},
            "final": {"screenshot": name, "text": text},
        }
        for i, (name, text) in enumerate(states)
    ]
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "t.jsonl"


def captioner(replies: dict[str, str | Exception]) -> VLMCaptioner:
    """A model that answers by the name of the picture."""

    def answer(messages: Sequence[Message]) -> str | Exception:
        picture = messages[0].parts[0]
        assert isinstance(picture, Image)
        return replies.get(Path(picture.path).name, LONG)

    return VLMCaptioner(ScriptedModel(answer))


async def make(folder: Path, eyes: VLMCaptioner, **spec: Any) -> TrainingTally:
    return await training_data([folder / "t.jsonl"], eyes, folder / "data", TrainingSpec(**spec))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "data/rows.jsonl").read_text().splitlines()]


def reasons(folder: Path) -> dict[str, str]:
    lines = map(json.loads, (folder / "data/dropped.jsonl").read_text().splitlines())
    return {Path(line["image"]).name: line["reason"] for line in lines}


async def test_rows_have_the_format_of_trl(tmp_path: Path) -> None:
    write(tmp_path, [(draw(tmp_path / "a.png", 1), ENGLISH)])
    tally = await make(tmp_path, captioner({"a.png": f"```markdown\n{LONG}\n```"}))
    (row,) = rows_of(tmp_path)
    assert (tmp_path / "data" / row["images"][0]).read_bytes() == (tmp_path / "a.png").read_bytes()
    (prompt,), (completion,) = row["prompt"], row["completion"]
    assert (prompt["role"], completion["role"]) == ("user", "assistant")
    assert [part["type"] for part in prompt["content"]] == ["image", "text"]
    assert "Describe this screenshot" in prompt["content"][1]["text"]
    assert completion["content"] == [{"type": "text", "text": LONG.strip()}], (
        "without the code block around it"
    )
    assert row.keys() == {"images", "prompt", "completion"} and "secret goal" not in json.dumps(row)
    assert (tally.rows, dict(tally.dropped)) == (1, {})


async def test_each_thing_left_out_says_why(tmp_path: Path) -> None:
    names = [
        draw(tmp_path / f"{name}.png", i) for i, name in enumerate(("good", "cut", "no", "short"))
    ]
    (tmp_path / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    near = draw(tmp_path / "near.png", 0, "typed")
    (tmp_path / "same.png").write_bytes((tmp_path / "good.png").read_bytes())
    write(tmp_path, [*((name, ENGLISH) for name in (*names, "torn.png", near, "same.png"))])
    replies: dict[str, str | Exception] = {
        "cut.png": TruncatedError("cut", LONG),
        "no.png": "I'm sorry, but I can't describe this image. " + LONG,
        "short.png": "A page.",
    }
    eyes = captioner(replies)
    tally = await make(tmp_path, eyes)
    assert reasons(tmp_path) == {
        "cut.png": "truncated",
        "no.png": "refusal",
        "short.png": "short",
        "torn.png": "broken",
        "near.png": "near-duplicate",
        "same.png": "equal",
    }
    assert (tally.rows, tally.asked.made) == (1, 4), "what is left out beforehand is not paid for"
    report = json.loads((tmp_path / "data/report.json").read_text())
    assert report["dropped"] == dict(tally.dropped) and report["rows"] == 1
    assert isinstance(eyes.model, ScriptedModel)
    asked = len(eyes.model.seen)
    again = await make(tmp_path, eyes, min_chars=1, near=-1)
    assert len(eyes.model.seen) == asked + 1, "only the one that was not asked about before"
    assert again.rows == 3 and set(reasons(tmp_path).values()) == {
        "truncated",
        "refusal",
        "broken",
        "equal",
    }


async def test_decisions_of_people_are_honoured(tmp_path: Path) -> None:
    names = [
        draw(tmp_path / f"{name}.png", i)
        for i, name in enumerate(("fine", "wrong", "mended", "short"))
    ]
    write(tmp_path, [(name, ENGLISH) for name in names])
    eyes = captioner({"short.png": "```\nA page.\n```"})
    assert (await make(tmp_path, eyes)).rows == 3

    def decided(name: str, choice: Any, text: str | None) -> Caption:
        return Caption(
            id=image_id(str(tmp_path / name)), captioner="anna", caption=text, choice=choice
        )

    with CaptionLog(tmp_path / "data" / DECISIONS, "anna") as log:
        log.append(decided("wrong.png", "rejected", None))
        log.append(decided("mended.png", "mended", "what is really there"))
        log.append(decided("short.png", "accepted", "```\nA page.\n```"))
    tally = await make(tmp_path, eyes)
    assert [row["completion"][0]["content"][0]["text"] for row in rows_of(tmp_path)] == [
        LONG.strip(),
        "what is really there",
        "A page.",
    ]
    assert (tally.rows, tally.mended, reasons(tmp_path)) == (3, 1, {"wrong.png": "rejected"})


async def test_stopped_run_goes_on_without_rows(tmp_path: Path) -> None:
    write(tmp_path, [(draw(tmp_path / f"{i}.png", i), ENGLISH) for i in range(4)])
    stop, eyes = asyncio.Event(), captioner({})
    tally = await training_data(
        [tmp_path / "t.jsonl"],
        eyes,
        tmp_path / "data",
        concurrency=1,
        stop=stop,
        progress=lambda tally: stop.set(),
    )
    assert (tally.asked.stopped, tally.asked.made, tally.rows) == (True, 1, 0)
    assert not (tmp_path / "data/rows.jsonl").exists()
    tally = await make(tmp_path, eyes)
    assert (tally.asked.kept, tally.asked.made, tally.rows) == (1, 3, 4)
