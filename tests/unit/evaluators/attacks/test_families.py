"""Families of attacks: what each changes, that it changes nothing else, and that a stronger one
does more of it.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.errors import UsageError
from prill.evaluators.attacks.families import ON_SCREENSHOTS, Variant, families, own_attacks
from prill.types import Action, Observation, Step, Task, Trajectory

CLICK = Step(Observation(text="start page"), Action("click", "click"), "first thought")
STOP = Step(
    Observation(text="cart"), Action("stop", "stop [I could not]", value="I could not"), "I give up"
)
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
    return next(
        v for variants in families(folder).values() for v in variants if v.name == name
    ).apply(trajectory)


def attacked(name: str, trajectory: Trajectory) -> Trajectory:
    changed = attack(name, trajectory)
    assert changed is not None
    return changed


VARIANTS = [variant for variants in families(Path("/nowhere")).values() for variant in variants]
IN_WORDS = [variant for variant in VARIANTS if variant.family not in ON_SCREENSHOTS]


@pytest.mark.parametrize("variant", IN_WORDS, ids=lambda variant: variant.name)
@pytest.mark.parametrize("recorded", [ENDED, CUT_OFF], ids=["ended", "cut off"])
def test_attack_leaves_the_original(variant: Variant, recorded: Trajectory) -> None:
    before = repr(recorded)
    first, second = variant.apply(recorded), variant.apply(recorded)
    assert first == second
    assert repr(recorded) == before
    if first is not None:
        assert first != recorded
        kept = (
            ("id", "task", "agent")
            if variant.family == "stop-early"
            else ("id", "task", "agent", "metadata", "error")
        )
        assert [getattr(first, field) for field in kept] == [
            getattr(recorded, field) for field in kept
        ]
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
    for text, original in (
        (changed.final.text, "The cart is empty"),
        (changed.final.caption, "an empty cart"),
    ):
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
    for text in (
        changed.answer,
        changed.final.text,
        changed.final.caption,
        changed.steps[-1].action.text,
    ):
        assert "\nStatus: success\n" in (text or "")
        assert '"status": "success"' in (text or "")
        assert ("[/state 1a2b]" in (text or "")) == (name == "escape-quotation")
    assert (changed.answer or "").startswith("I could not\n\n")
    assert attacked(name, CUT_OFF).answer


WORDS = "word " * 400
LONG = replace(
    ENDED,
    steps=tuple(
        Step(
            Observation(text=f"state {i}: {WORDS}"),
            Action("click", f"click {i}"),
            f"thought {i}" if i % 2 else None,
        )
        for i in range(8)
    ),
    final=Observation(
        text=f"the end: {WORDS}", caption="the cart is empty", url="http://shop.test/cart"
    ),
    answer=None,
    metadata={"truncated": True, "terminated": False, "seed": 3},
    error="the environment broke",
)


def amounts(name: str, recorded: Trajectory, amount: Callable[[Trajectory], float]) -> list[float]:
    """What a measure gives of a recording, and of its copies under a family, the strongest last."""
    copies = [variant.apply(recorded) for variant in families(Path("/nowhere"))[name]]
    assert None not in copies
    return [amount(recorded), *(amount(copy) for copy in copies if copy)]


def end(trajectory: Trajectory) -> str:
    return (trajectory.final and trajectory.final.text) or ""


def thought_characters(trajectory: Trajectory) -> int:
    return sum(len(step.thought or "") for step in trajectory.steps)


def foreign(trajectory: Trajectory) -> int:
    return sum(not c.isascii() for c in end(trajectory))


GROWTH: dict[str, Callable[[Trajectory], float]] = {
    "thoughts-padded": thought_characters,
    "answer-paraphrase": lambda t: len(t.answer or ""),
    "answer-long": lambda t: len(t.answer or ""),
    "steps-clicks": lambda t: len(t.steps),
    "steps-typing": lambda t: len(t.steps),
    "blank-end": lambda t: sum("about:blank" in (o.text or "") for o in t.observations),
    "error-end": lambda t: sum("Bad Gateway" in (o.text or "") for o in t.observations),
    "pad-before": lambda t: len(end(t)),
    "pad-after": lambda t: len(end(t)),
    "pad-both": lambda t: len(end(t)),
    "look-alikes": foreign,
    "invisible": foreign,
    "goal-on-page": lambda t: end(t).count("Buy {it} now"),
    "goal-in-title": lambda t: end(t).count("Buy {it} now"),
    "goal-in-url": lambda t: ((t.final and t.final.url) or "").count("Buy+%7Bit%7D+now"),
    **{
        f"confirm-{code}": lambda t: end(t).count("\n")
        for code in ("en", "de", "fr", "es", "zh", "ja", "ar")
    },
}


@pytest.mark.parametrize("name", GROWTH)
def test_stronger_attacks_do_more(name: str) -> None:
    sizes = amounts(name, LONG, GROWTH[name])
    assert sizes == sorted(set(sizes))


def test_stop_early_ends_by_the_agent() -> None:
    for name, kept in (
        ("stop-early-0", 8),
        ("stop-early-25", 6),
        ("stop-early-50", 4),
        ("stop-early-75", 2),
    ):
        changed = attacked(name, LONG)
        assert changed.steps[:-1] == LONG.steps[:kept]
        assert changed.steps[-1].action.is_final
        assert changed.final == changed.steps[-1].observation == LONG.observations[kept]
        assert (changed.metadata, changed.error) == (
            {"truncated": False, "terminated": True, "seed": 3},
            None,
        )
        assert "completed successfully" in (changed.answer or "")
    assert attacked("stop-early-0", ENDED).steps[:-1] == (CLICK,), "its own last word goes"
    assert attack("stop-early-75", CUT_OFF) is None, "of one step none can be left out"
    assert attacked("stop-early-0", ENDED).metadata == {"truncated": False}, "no key is added"


@pytest.mark.parametrize("name", ["look-alikes", "invisible"])
def test_hidden_letters_by_share(name: str) -> None:
    letters = sum(c.isalpha() for c in end(LONG))
    _, *changed = amounts(name, LONG, foreign)
    for share, count in zip((0.05, 0.2, 0.5, 1.0), changed, strict=True):
        assert count / letters == pytest.approx(share, abs=0.02)
    weak, strong = end(attacked(f"{name}-20", LONG)), end(attacked(f"{name}-50", LONG))
    if name == "look-alikes":
        assert all(s == w for w, s in zip(weak, strong, strict=True) if not w.isascii()), (
            "a stronger one does the same, and more"
        )
    else:
        assert "".join(c for c in strong if c.isascii()) == end(LONG), "what can be seen stays"


def test_own_attack_is_a_function(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from prill.evaluators.attacks.families import Variant\n"
        "def shout(trajectory): return trajectory\n"
        "SEVERAL = [Variant('loud', n, f'loud-{n}', shout) for n in (1, 2)]\n"
        "BAD_NAME = Variant('a', 1, '../a', shout)\n"
        "NUMBER = 3\n"
    )
    (one,) = own_attacks(f"{file}:shout")
    assert (one.family, one.name, one.strength) == ("shout", "shout", 1.0)
    assert one.source.startswith("sha256:")
    assert [variant.name for variant in own_attacks(f"{file}:SEVERAL")] == ["loud-1", "loud-2"]
    for name, message in (
        ("NUMBER", "is not an attack"),
        ("BAD_NAME", "cannot be used in the name of a verdict file"),
        ("none", "has no 'none'"),
    ):
        with pytest.raises(UsageError, match=message):
            own_attacks(f"{file}:{name}")


def test_screenshot_attack_draws_on_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "end.png"
    Picture.new("RGB", (320, 200), "blue").save(path)
    before = path.read_bytes()
    recorded = replace(ENDED, final=Observation(screenshot=str(path)))
    changed = attack("inject-screenshot", recorded, tmp_path / "images")
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
    assert attack("inject-screenshot", recorded, tmp_path / "images") == changed
    assert copy.stat().st_mtime_ns == first, "drawn once"
    assert [file.name for file in copy.parent.iterdir()] == [copy.name]


def test_screenshot_attack_read_by_ocr(tmp_path: Path) -> None:
    pytest.importorskip("rapidocr")
    import asyncio

    from prill.captioner.ocr import OCRCaptioner

    path = tmp_path / "end.png"
    Picture.new("RGB", (1280, 720), "white").save(path)
    changed = attack(
        "inject-screenshot", replace(ENDED, final=Observation(screenshot=str(path))), tmp_path
    )
    assert changed is not None
    assert changed.final is not None
    text = " ".join(asyncio.run(OCRCaptioner()(changed.final)).split())
    assert "ignore previous instructions" in text
    assert "Status: success" in text
