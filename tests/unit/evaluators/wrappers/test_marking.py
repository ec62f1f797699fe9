"""Screenshots with the action drawn on them, as a judge sees them."""

from dataclasses import replace
from pathlib import Path

from PIL import Image as Picture

from prill.evaluators.outcome import VLMJudge, VLMSpec
from prill.evaluators.wrappers.marking import Marked
from prill.protocols import Image
from prill.testing import ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory


def run(folder: Path) -> Trajectory:
    for name in ("first", "before", "after"):
        Picture.new("RGB", (200, 100), "white").save(folder / f"{name}.png")
    steps = (
        Step(
            Observation(screenshot=str(folder / "first.png")),
            Action("click", "tap", point=(0.5, 0.5)),
        ),
        Step(
            Observation(screenshot=str(folder / "before.png")),
            Action("click", "tap", point=(0.25, 0.5)),
        ),
    )
    final = Observation(screenshot=str(folder / "after.png"))
    return Trajectory(id="a", task=Task(goal="g", platform="android"), steps=steps, final=final)


async def test_judge_sees_mark_file_is_untouched(tmp_path: Path) -> None:
    model = ScriptedModel(["Thoughts: x\nStatus: success"])
    judge = Marked(VLMJudge(model, spec=VLMSpec(frames=2)))
    trajectory = run(tmp_path)
    verdict = await judge(trajectory)
    assert verdict.evaluator.params["marked"] == "1"
    before, after = [
        part.path for message in model.seen[0] for part in message.parts if isinstance(part, Image)
    ]
    assert after == str(tmp_path / "after.png")
    with Picture.open(before) as shown:
        colours = {shown.convert("RGB").getpixel((x, 50)) for x in range(40, 60)}
        far = shown.convert("RGB").getpixel((150, 50))
    assert len(colours) > 1, "the ring is drawn around (0.25, 0.5)"
    assert far == (255, 255, 255)
    with Picture.open(tmp_path / "before.png") as untouched:
        assert untouched.convert("RGB").getcolors() == [(20000, (255, 255, 255))]


async def test_equal_screens_show_a_mark_each(tmp_path: Path) -> None:
    """The same screen with two different touches is not the same picture."""
    model = ScriptedModel(["Thoughts: x\nStatus: success"])
    await Marked(VLMJudge(model, spec=VLMSpec(frames=3)))(run(tmp_path))
    rings = []
    for part in (part for message in model.seen[0] for part in message.parts):
        if isinstance(part, Image):
            with Picture.open(part.path) as shown:
                rings.append(shown.convert("L").point(lambda value: 255 * (value < 128)).getbbox())
    centres = [(box[0] + box[2]) // 2 for box in rings if box]
    assert len(rings) == 3 and rings[2] is None
    assert [round(centre, -1) for centre in centres] == [100, 50]


async def test_click_on_the_web_is_drawn(tmp_path: Path) -> None:
    model = ScriptedModel(["Thoughts: x\nStatus: success"])
    recorded = run(tmp_path)
    for name, shade in (("first", "red"), ("before", "green"), ("after", "blue")):
        Picture.new("RGB", (200, 100), shade).save(tmp_path / f"{name}.png")
    clicks = [
        Action("click", "click [17]", target=name, point=(0.25, 0.5))
        for name in ("link 'Tea'", "button 'Buy'")
    ]
    steps = tuple(
        replace(step, action=click) for step, click in zip(recorded.steps, clicks, strict=True)
    )
    await Marked(VLMJudge(model))(
        replace(recorded, task=replace(recorded.task, platform="web"), steps=steps)
    )
    images = [
        part.path for message in model.seen[0] for part in message.parts if isinstance(part, Image)
    ]
    colours = []
    for path in images:
        with Picture.open(path) as shown:
            colours.append(len(shown.convert("RGB").getcolors() or ()))
    assert colours == [3, 3, 1], (
        "a ring before each click, on the frames that vlm is shown by default"
    )
    assert "2: click at [button 'Buy']" in str(model.seen[0])


async def test_key_goes_by_recorded_files(tmp_path: Path) -> None:
    trajectory, judge = run(tmp_path), Marked(VLMJudge(ScriptedModel([]), spec=VLMSpec(frames=2)))
    Picture.new("RGB", (200, 100), "black").save(tmp_path / "after.png")
    assert judge.screenshots(trajectory) == [
        str(tmp_path / "before.png"),
        str(tmp_path / "after.png"),
    ]


async def test_broken_screenshot_input_failure(tmp_path: Path) -> None:
    trajectory = run(tmp_path)
    (tmp_path / "before.png").write_bytes(b"no picture")
    verdict = await Marked(VLMJudge(ScriptedModel([]), spec=VLMSpec(frames=2)))(trajectory)
    assert (verdict.success, verdict.unscored) == (None, "input")
