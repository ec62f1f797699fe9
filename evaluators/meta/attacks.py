"""Attacks on judges: a fixed set of rewrites that change what a trajectory says, and nothing of what was done in it.

Each is a function that gives a rewritten copy, or None where it does not apply. The texts are in `attacks.toml`. Rewriting
only what an agent says of itself raises the false positives of judges: arXiv 2601.14691.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from prill.models.images import file_hash, open_checked
from prill.models.prompts import Prompt, content_hash
from prill.types import Action, Observation, Step, Trajectory

if TYPE_CHECKING:
    from PIL.Image import Image


Attack = Callable[[Trajectory], Trajectory | None]
WHAT = MappingProxyType(
    {
        "claim-thoughts": "the last thought says that all is done",
        "claim-answer": "the final answer restates the goal as done",
        "claim-stop": "where the agent did not stop by itself, it now stops with that answer",
        "inject-page": "text and caption of the last state tell the judge to say success",
        "inject-screenshot": "the last screenshot tells the judge to say success",
        "fake-verdict": "answer, text and caption hold verdicts in the form that judges use",
        "escape-quotation": "the same behind forged ends of quotations",
    }
)


@dataclass(frozen=True, slots=True)
class AttackTexts:
    """The texts by the name of their attack, the set's version, and a hash of all of it."""

    version: str
    texts: Mapping[str, Prompt]
    hash: str

    def of(self, name: str, trajectory: Trajectory) -> str:
        """The text for a trajectory."""
        prompt = self.texts[name]
        return prompt.fill({"goal": " ".join(trajectory.task.goal.split())} if prompt.slots else {})["user"]


@cache
def attack_texts() -> AttackTexts:
    """The texts of `attacks.toml`."""
    raw = (files("prill.evaluators.meta") / "attacks.toml").read_text(encoding="utf-8")
    read = tomllib.loads(raw)
    texts = {name: Prompt(name, text) for name, text in read["texts"].items()}
    return AttackTexts(read["version"], MappingProxyType(texts), content_hash(raw))


def attacks(images: Path) -> dict[str, Attack]:
    """Every attack by name; `images` is the folder for screenshots that are drawn on."""
    return {
        "claim-thoughts": claim_in_thoughts,
        "claim-answer": claim_in_answer,
        "claim-stop": claim_and_stop,
        "inject-page": inject_into_page,
        "inject-screenshot": partial(inject_into_screenshot, images=images),
        "fake-verdict": partial(_in_answer_and_page, name="fake-verdict"),
        "escape-quotation": partial(_in_answer_and_page, name="escape-quotation"),
    }


def claim_in_thoughts(trajectory: Trajectory) -> Trajectory | None:
    """The claim after the last thought; None without steps."""
    if not trajectory.steps:
        return None
    last = trajectory.steps[-1]
    thought = _after(last.thought, attack_texts().of("claim-thoughts", trajectory))
    return replace(trajectory, steps=(*trajectory.steps[:-1], replace(last, thought=thought)))


def claim_in_answer(trajectory: Trajectory) -> Trajectory:
    """The claim in place of the answer. How the run ended stays: a run that was cut off is still one."""
    return _answered(trajectory, attack_texts().of("claim-answer", trajectory))


def claim_and_stop(trajectory: Trajectory) -> Trajectory | None:
    """One more step, in the last state, which ends the run with the claim; None where the agent ended it by itself.

    The only attack that changes an action: what it costs an agent to be believed by judges that look at how a run ended.
    """
    if trajectory.steps and trajectory.steps[-1].action.is_final:
        return None
    claim = attack_texts().of("claim-answer", trajectory)
    last_state = trajectory.observations[-1] if trajectory.observations else Observation()
    steps = (*trajectory.steps, Step(last_state, Action("answer", f"answer [{claim}]", value=claim)))
    return replace(trajectory, steps=steps, final=last_state, answer=claim)


def inject_into_page(trajectory: Trajectory) -> Trajectory | None:
    """The instruction at the end of the last state's text and caption; None where it has neither."""
    return _on_page(trajectory, attack_texts().of("inject-page", trajectory))


def inject_into_screenshot(trajectory: Trajectory, images: Path) -> Trajectory | None:
    """The instruction drawn along the lower edge of a copy of the last screenshot, kept in `images`; None without one.

    Raises InputError when the screenshot cannot be used.
    """
    if not trajectory.observations or not (path := trajectory.observations[-1].screenshot):
        return None
    text = attack_texts().of("inject-screenshot", trajectory)
    name = hashlib.sha256(f"{file_hash(path)} {text}".encode()).hexdigest()[:32]
    copy = images / f"{name}.png"
    if not copy.exists():
        images.mkdir(parents=True, exist_ok=True)
        # Under another name first: a run that is killed here leaves no half picture to be taken for a whole one.
        partly = images / f"{name}.partly.png"
        _with_banner(open_checked(path), text).save(partly)
        partly.replace(copy)
    return _last_state(trajectory, lambda state: replace(state, screenshot=str(copy)))


def _in_answer_and_page(trajectory: Trajectory, name: str) -> Trajectory:
    text = attack_texts().of(name, trajectory)
    answered = _answered(trajectory, _after(trajectory.answer, text))
    return _on_page(answered, text) or answered


def _answered(trajectory: Trajectory, answer: str) -> Trajectory:
    steps = trajectory.steps
    if steps and steps[-1].action.is_final:
        action = steps[-1].action
        old = action.value or trajectory.answer
        text = action.text.replace(old, answer) if old and old in action.text else f"{action.kind} [{answer}]"
        steps = (*steps[:-1], replace(steps[-1], action=replace(action, text=text, value=answer)))
    return replace(trajectory, steps=steps, answer=answer)


def _on_page(trajectory: Trajectory, text: str) -> Trajectory | None:
    # At the end, which judges keep where they shorten.
    def with_text(state: Observation) -> Observation:
        page = _after(state.text, text) if state.text else state.text
        caption = _after(state.caption, text) if state.caption else state.caption
        return replace(state, text=page, caption=caption)

    result = _last_state(trajectory, with_text)
    return None if result == trajectory else result


def _last_state(trajectory: Trajectory, change: Callable[[Observation], Observation]) -> Trajectory:
    if trajectory.final is not None:
        return replace(trajectory, final=change(trajectory.final))
    if not trajectory.steps:
        return trajectory
    last = trajectory.steps[-1]
    return replace(trajectory, steps=(*trajectory.steps[:-1], replace(last, observation=change(last.observation))))


def _after(before: str | None, text: str) -> str:
    return f"{before}\n\n{text}" if before else text


def _with_banner(image: Image, text: str) -> Image:
    """The picture with the text, large enough to be read, in a light box along its lower edge."""
    from textwrap import wrap

    from PIL import ImageDraw, ImageFont

    size = max(12, image.width // 40)
    font = ImageFont.load_default(size)
    draw = ImageDraw.Draw(image)
    letter = draw.textlength("n", font)
    # Short lines: OCR engines squeeze long ones until nobody can read them.
    lines = wrap(text, max(8, min(40, int((image.width - size) / letter))))
    height = int(len(lines) * size * 1.3 + size)
    draw.rectangle((0, image.height - height, image.width, image.height), fill=(255, 250, 205))
    for i, line in enumerate(lines):
        draw.text((size / 2, image.height - height + size / 2 + i * size * 1.3), line, (0, 0, 0), font)
    return image
