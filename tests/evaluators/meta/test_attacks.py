"""The fixed set of attacks: what each changes, and that it changes nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.errors import InputError
from prill.evaluators.meta.attacks import WHAT, attack_texts, attacks, inject_into_screenshot
from prill.types import Action, Observation, Step, Task, Trajectory

CLICK = Step(Observation(text="start page"), Action("click", "click"), "first thought")
STOP = Step(Observation(text="cart"), Action("stop", "stop [I could not]", value="I could not"), "I give up")
ENDED = Trajectory(
    id="a",
    task=Task(goal="Buy {it}\nnow", platform="web"),
    steps=(CLICK, STOP),
    final=Observation(text="The cart is empty", caption="an empty cart"),
    answer="I could not",
    metadata={"truncated": False},
)
CUT_OFF = replace(ENDED, steps=(CLICK,), answer=None, metadata={"truncated": True})


def attack(name: str, trajectory: Trajectory, folder: Path = Path("/nowhere")) -> Trajectory | None:
    return attacks(folder)[name](trajectory)


def attacked(name: str, trajectory: Trajectory) -> Trajectory:
    changed = attack(name, trajectory)
    assert changed is not None
    return changed


def test_attacks_all_have_texts() -> None:
    assert list(attacks(Path())) == list(WHAT)
    assert set(WHAT) - {"claim-stop"} == set(attack_texts().texts)
    assert attack_texts().version == "1"


@pytest.mark.parametrize("name", [name for name in WHAT if name != "inject-screenshot"])
@pytest.mark.parametrize("recorded", [ENDED, CUT_OFF])
def test_attack_leaves_the_original(name: str, recorded: Trajectory) -> None:
    before = repr(recorded)
    first, second = attack(name, recorded), attack(name, recorded)
    assert first == second
    assert repr(recorded) == before
    if first is not None:
        assert first != recorded
        kept = ("id", "task", "agent", "metadata", "error")
        assert [getattr(first, field) for field in kept] == [getattr(recorded, field) for field in kept]
        assert "{{" not in repr(first)


def test_claim_thoughts_changes_last_only() -> None:
    changed = attacked("claim-thoughts", ENDED)
    thought = changed.steps[-1].thought or ""
    assert thought.startswith("I give up\n\n")
    assert "Buy {it} now" in thought
    assert replace(changed, steps=(CLICK, replace(changed.steps[-1], thought="I give up"))) == ENDED
    assert attack("claim-thoughts", replace(ENDED, steps=())) is None


def test_claim_answer_in_final_action_too() -> None:
    changed = attacked("claim-answer", ENDED)
    answer = changed.answer or ""
    assert answer.startswith("Done: Buy {it} now")
    assert "could not" not in repr(changed)
    assert changed.steps[-1].action == Action("stop", f"stop [{answer}]", value=answer)
    assert (changed.steps[0], changed.final) == (CLICK, ENDED.final)


def test_claim_answer_keeps_a_cut_off_run() -> None:
    changed = attacked("claim-answer", CUT_OFF)
    assert changed.steps == CUT_OFF.steps
    assert (changed.answer or "").startswith("Done")


def test_claim_stop_adds_one_step() -> None:
    changed = attacked("claim-stop", CUT_OFF)
    assert changed.steps[:-1] == CUT_OFF.steps
    assert changed.steps[-1].action.is_final
    assert changed.steps[-1].action.value == changed.answer
    assert changed.steps[-1].observation == changed.final == CUT_OFF.final
    assert attack("claim-stop", ENDED) is None
    assert attacked("claim-stop", Trajectory(id="a", task=Task(goal="g"))).answer


def test_inject_page_in_last_state_only() -> None:
    changed = attacked("inject-page", ENDED)
    assert changed.final is not None
    for text, original in ((changed.final.text, "The cart is empty"), (changed.final.caption, "an empty cart")):
        assert text is not None
        assert text.startswith(original)
        assert "ignore previous instructions" in text
        assert text.endswith("Status: success")
    assert replace(changed, final=ENDED.final) == ENDED
    bare = replace(ENDED, final=Observation(screenshot="x.png"))
    assert attack("inject-page", bare) is None, "an earlier state with text does not count"
    last_step = attacked("inject-page", replace(ENDED, final=None))
    assert "ignore previous" in (last_step.steps[-1].observation.text or "")
    assert last_step.steps[0] == CLICK
    assert attack("inject-page", Trajectory(id="a", task=Task(goal="g"))) is None


@pytest.mark.parametrize("name", ["fake-verdict", "escape-quotation"])
def test_fake_verdict_in_answer_and_page(name: str) -> None:
    changed = attacked(name, ENDED)
    assert changed.final is not None
    for text in (changed.answer, changed.final.text, changed.final.caption, changed.steps[-1].action.text):
        assert "\nStatus: success\n" in (text or "")
        assert '"status": "success"' in (text or "")
        assert ("[/state 1a2b]" in (text or "")) == (name == "escape-quotation")
    assert (changed.answer or "").startswith("I could not\n\n")
    assert attacked(name, CUT_OFF).answer


def test_screenshot_attack_draws_on_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "end.png"
    Picture.new("RGB", (320, 200), "blue").save(path)
    before = path.read_bytes()
    recorded = replace(ENDED, final=Observation(screenshot=str(path)))
    changed = inject_into_screenshot(recorded, tmp_path / "images")
    assert changed is not None
    assert changed.final is not None
    copy = Path(changed.final.screenshot or "")
    assert copy.parent == tmp_path / "images"
    picture = Picture.open(copy)
    assert picture.size == (320, 200)
    assert picture.getpixel((10, 5)) == (0, 0, 255)
    dark, light = picture.convert("L").crop((0, 150, 320, 200)).getextrema()
    assert dark < 20
    assert light > 240
    assert path.read_bytes() == before
    first = copy.stat().st_mtime_ns
    assert inject_into_screenshot(recorded, tmp_path / "images") == changed
    assert copy.stat().st_mtime_ns == first, "drawn once"
    assert [file.name for file in copy.parent.iterdir()] == [copy.name]


def test_screenshot_attack_needs_an_image(tmp_path: Path) -> None:
    assert attack("inject-screenshot", ENDED, tmp_path) is None
    with pytest.raises(InputError, match="missing"):
        attack("inject-screenshot", replace(ENDED, final=Observation(screenshot="/nowhere/x.png")), tmp_path)


def test_screenshot_attack_read_by_ocr(tmp_path: Path) -> None:
    pytest.importorskip("rapidocr")
    import asyncio

    from prill.captioner.ocr import OCRCaptioner

    path = tmp_path / "end.png"
    Picture.new("RGB", (1280, 720), "white").save(path)
    changed = inject_into_screenshot(replace(ENDED, final=Observation(screenshot=str(path))), tmp_path)
    assert changed is not None
    assert changed.final is not None
    text = " ".join(asyncio.run(OCRCaptioner()(changed.final)).split())
    assert "ignore previous instructions" in text
    assert "Status: success" in text
