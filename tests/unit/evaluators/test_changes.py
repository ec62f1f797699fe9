"""What counts as another screen: small real changes do, carets, clocks and spinners do not."""

import gzip
import itertools
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from prill import judge
from prill.errors import InputError
from prill.evaluators.changes import changed_regions, same_screen
from prill.evaluators.evidence import select_frames
from prill.evaluators.frames import FrameSpec, distinct_frames
from prill.evaluators.outcome import VLMJudge, VLMSpec
from prill.evaluators.webjudge import WebJudge
from prill.io.images import file_hash
from prill.protocols import Image as ModelImage
from prill.testing import ScriptedModel
from prill.types import Action, Observation, Platform, Step, Task, Trajectory
from tests.support.paths import ROOT

Draw = Callable[[ImageDraw.ImageDraw], None]


def screen(path: Path, draw: Draw | None = None, scale: int = 1) -> str:
    picture = Image.new("RGB", (1280 * scale, 720 * scale), "white")
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 0, 1280 * scale, 56 * scale), fill="#1a73e8")
    for i in range(10):
        write(60, 90 + 40 * i, f"Line {i}: a quick brown fox", 16, scale)(pen)
    for top in (300, 360):
        pen.rectangle((600 * scale, top * scale, 630 * scale, (top + 22) * scale), outline="#555")
    if draw is not None:
        draw(pen)
    picture.save(path)
    return str(path)


def write(x: int, y: int, text: str, size: int = 16, scale: int = 1) -> Draw:
    font = ImageFont.load_default(size * scale)
    return lambda pen: pen.text((x * scale, y * scale), text, font=font, fill="black")


def caret(pen: ImageDraw.ImageDraw) -> None:
    pen.rectangle((640, 306, 640, 324), fill="black")


def tick(pen: ImageDraw.ImageDraw) -> None:
    pen.line([(603, 368), (607, 373), (613, 363)], fill="black", width=2)


def row(pen: ImageDraw.ImageDraw) -> None:
    pen.rectangle((700, 100, 1000, 130), fill="#e8f0fe")


def arc(start: int) -> Draw:
    return lambda pen: pen.arc((1000, 400, 1032, 432), start, start + 270, fill="#1a73e8", width=4)


def dots(first: int) -> Draw:
    def draw(pen: ImageDraw.ImageDraw) -> None:
        for i in range(8):
            x, y = (1016 + 14 * f(math.radians(45 * i)) for f in (math.cos, math.sin))
            shade = 255 - 28 * ((i + first) % 8)
            pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill=(shade, shade, shade))

    return draw


SAME: dict[str, tuple[Draw | None, Draw | None, Platform]] = {
    "caret": (None, caret, "web"),
    "arc that turns": (arc(0), arc(90), "web"),
    "dots that turn": (dots(0), dots(1), "web"),
    "clock of a phone": (write(20, 6, "12:34"), write(20, 6, "12:35"), "android"),
    "clock of a desktop": (write(1200, 696, "12:34"), write(1200, 696, "12:35"), "desktop"),
    "nothing": (None, None, "web"),
}
OTHER: dict[str, tuple[Draw | None, Draw | None, Platform]] = {
    "tick": (None, tick, "web"),
    "selected row": (None, row, "web"),
    "line of text": (None, write(60, 600, "Saved."), "web"),
    "number in the header of a page": (write(20, 6, "Cart: 1"), write(20, 6, "Cart: 2"), "web"),
    "caret and tick": (caret, tick, "web"),
    "phone: number below the status bar": (
        write(20, 60, "12:34"),
        write(20, 60, "12:35"),
        "android",
    ),
    **{
        f"number {a} to {b}, {size} px": (write(604, 304, a, size), write(604, 304, b, size), "web")
        for a, b in (("3", "8"), ("6", "9"), ("12", "21"), ("69", "96"), ("0", "8"), ("", "1"))
        for size in (12, 24)
    },
}


@pytest.mark.parametrize("format", ["png", "jpg"])
@pytest.mark.parametrize("name", SAME)
def test_carets_clocks_and_spinners_are_no_change(tmp_path: Path, name: str, format: str) -> None:
    before, after, platform = SAME[name]
    pair = screen(tmp_path / f"a.{format}", before), screen(tmp_path / f"b.{format}", after)
    assert same_screen(*pair, platform)


@pytest.mark.parametrize("format", ["png", "jpg"])
@pytest.mark.parametrize("name", OTHER)
def test_small_real_changes_are_another_screen(tmp_path: Path, name: str, format: str) -> None:
    before, after, platform = OTHER[name]
    pair = screen(tmp_path / f"a.{format}", before), screen(tmp_path / f"b.{format}", after)
    assert not same_screen(*pair, platform)


def test_regions_are_where_something_changed(tmp_path: Path) -> None:
    def both(pen: ImageDraw.ImageDraw) -> None:
        tick(pen), row(pen)

    before, after = screen(tmp_path / "a.png"), screen(tmp_path / "b.png", both)
    regions = changed_regions(before, after)
    assert regions is not None and regions[0] == (700, 100, 1001, 131)
    [(left, top, right, bottom)] = regions[1:]
    assert 600 <= left < right <= 617 and 360 <= top < bottom <= 376
    assert changed_regions(before, before) == ()


def test_other_sizes_and_huge_pictures_are_not_compared(tmp_path: Path) -> None:
    """8K would take gigabytes; 4K is compared, and its tick is seen."""
    paths = [str(tmp_path / f"{i}.png") for i in range(3)]
    for path, size in zip(paths, [(20, 10), (10, 20), (7680, 4320)], strict=True):
        Image.new("L", size).save(path)
    assert changed_regions(paths[0], paths[1]) is None and not same_screen(paths[0], paths[1])
    assert changed_regions(paths[2], str(Path(paths[2]).resolve())) is None
    large = [
        screen(tmp_path / f"large{i}.png", write(604, 304, text, 16, 3), 3)
        for i, text in enumerate("38")
    ]
    assert len(changed_regions(*large) or ()) == 1 and not same_screen(*large)


def test_picture_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing"):
        same_screen(screen(tmp_path / "a.png"), str(tmp_path / "b.png"))


def attempt(folder: Path) -> Trajectory:
    """Start, the same with a caret, a tick, the same with a turned spinner and a caret."""
    draws: list[Draw | None] = [None, caret, tick, lambda pen: (tick(pen), caret(pen))[0]]
    states = [
        Observation(screenshot=screen(folder / f"{i}.png", draw)) for i, draw in enumerate(draws)
    ]
    steps = tuple(Step(state, Action("click", "click")) for state in states[:-1])
    return Trajectory(id="a", task=Task(goal="g", platform="web"), steps=steps, final=states[-1])


async def test_judges_drop_near_duplicates_on_request(tmp_path: Path) -> None:
    run = attempt(tmp_path)
    frames = await distinct_frames(run, None, by_region=True)
    assert [frame.states for frame in frames] == [(0, 1), (2, 3)]
    assert [Path(frame.image or "").stem for frame in frames] == ["1", "3"], "the latest is shown"
    assert len(await distinct_frames(run, None)) == 4

    def shown(count: int | None, region: bool) -> str:
        states = select_frames(run, count, "region" if region else "bytes")
        return "".join(Path(state.screenshot or "").stem for _, state in states)

    assert [shown(None, False), shown(3, False)] == ["023", "123"]
    assert [shown(None, True), shown(3, True), shown(1, True)] == ["03", "13", "3"]


@pytest.mark.parametrize(("pictures", "shown"), [("abcc", "abc"), ("aaaa", "a"), ("abcd", "bcd")])
async def test_equal_pictures_are_sent_once(pictures: str, shown: str, tmp_path: Path) -> None:
    """By default, each a file of its own: the latest distinct ones count. Different ones are sent
    as ever.
    """
    states = []
    for i, name in enumerate(pictures):
        Image.new("L", (20, 10), ord(name)).save(tmp_path / f"{i}{name}.png")
        states.append(Observation(screenshot=str(tmp_path / f"{i}{name}.png")))
    steps = tuple(Step(state, Action("wait", "wait")) for state in states[:-1])
    run = Trajectory(id="a", task=Task(goal="g"), steps=steps, final=states[-1])
    model = ScriptedModel(["Thoughts: so\nStatus: success"])
    look = VLMJudge(model, spec=VLMSpec(frames=3))
    assert (await look(run)).success
    parts = [part for message in model.seen[0] for part in message.parts]
    sent = [part.path for part in parts if isinstance(part, ModelImage)]
    assert "".join(Path(path).stem[1:] for path in sent) == shown
    assert sent == list(look.screenshots(run)) and sent[-1] == states[-1].screenshot


def test_option_is_recorded_where_it_is_set() -> None:
    """Keys of verdicts from before the option hold."""
    model = ScriptedModel([])
    for plain, chosen in (
        (VLMJudge(model), VLMJudge(model, spec=VLMSpec(distinct="region"))),
        (WebJudge(model), WebJudge(model, spec=FrameSpec(distinct="region"))),
    ):
        assert "distinct" not in plain.info.params
        assert chosen.info.params["distinct"] == "region"
    made = judge("vlm", model="m", base_url="http://localhost:1", distinct="region")
    assert made.info.params["distinct"] == "region"


@pytest.mark.labelled
def test_real_recordings_lose_carets_and_noise_alone() -> None:
    """Consecutive screenshots of AgentRewardBench: few are dropped besides equal files, and none
    with more than a caret's pixels between.
    """
    base = Path(os.environ.get("PRILL_DATA") or ROOT.parent / "shared" / "data")
    folder = base / "arb_webjudge"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    pairs = set()
    with gzip.open(folder / "trajectories.jsonl.gz") as lines:
        for line in lines:
            names = [step["screenshot"] for step in json.loads(line)["steps"]]
            shown = [str(folder / "images" / Path(name).name) for name in names if name]
            pairs |= set(itertools.pairwise(shown))
    others = [pair for pair in sorted(pairs) if file_hash(pair[0]) != file_hash(pair[1])]
    dropped = [pair for pair in others if same_screen(*pair)]
    assert dropped and len(dropped) < 0.05 * len(others)
    for pair in dropped:
        for left, top, right, bottom in changed_regions(*pair) or ():
            assert right - left <= 2 and bottom - top <= 14
