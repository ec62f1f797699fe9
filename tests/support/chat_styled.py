"""A model that rephrases the answers of another one as chat models do: in Markdown, JSON, prose or
other languages.

The content is that of the wrapped programmatic model, so a failure is caused by the reply's form
alone. The styles are those of `tests/papers/replies`. The seed and the request determine the style
of an answer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, TypeVar

from prill.protocols import LanguageModel, Message, Reply
from tests.support.programmatic.shop import ProgrammaticShop
from tests.support.programmatic.step import ProgrammaticStep
from tests.support.programmatic.structured import StructuredPlanner
from tests.support.programmatic.synapse import ExemplarFollower

if TYPE_CHECKING:
    from prill.protocols import Form

_STEP = re.compile(r"REASON: (.*?)\nACTION: (.*)", re.DOTALL)
_BLOCK = re.compile(r"```(?:python)?\n(.*?)\n?```", re.DOTALL)
_LESSON = re.compile(r"For action index=(\d+), you should (.*)")
_CHOICE = re.compile(
    r"(?:Answer: )?([A-Z])\.(?:\s*Action: (CLICK|SELECT|TYPE)(?:\nValue: (.*))?)?\s*"
)
_FENCE = "```"
SORRY = "I'm sorry, but I can't tell from this page what should be done next."
T = TypeVar("T")
_Style = Callable[[str, str], str]

# Styles for an action and its reason, as SteP's policies give them.
STEP: tuple[_Style, ...] = (
    lambda why, act: f"REASON: {why}\nACTION: {act}",
    lambda why, act: f"**REASON:** {why}\n\n**ACTION:** {act}",
    lambda why, act: f"REASON: {why}\nACTION: `{act}`",
    lambda why, act: f"REASON: {why}\n\nACTION:\n{_FENCE}\n{act}\n{_FENCE}",
    lambda why, act: f"## REASON\n{why}\n\n## ACTION\n{act}",
    lambda why, act: f"Reason: {why}\nAction: {act}",
    lambda why, act: f"{_FENCE}\nREASON: {why}\nACTION: {act}\n{_FENCE}",
    lambda why, act: (
        f"<think>\nACTION: click [99999]? No.\n</think>\n\nREASON: {why}\nACTION: {act}<|im_end|>"
    ),
    lambda why, act: f"{why}\n\n**Final Action:** `{act}`",
    lambda why, act: f"- **REASON:** {why}\n- **ACTION:** {act}",
    lambda why, act: f"{why}\n\n{act}",
    lambda why, act: f"Grund: {why}\nAktion: {act}",
    lambda why, act: f"理由：{why}\n动作：{act}",
    lambda why, act: json.dumps({"reason": why, "action": act}),
    lambda why, act: (
        f"<tool_call>\n{json.dumps({'name': act.partition(' ')[0], 'arguments': _arguments(act)})}\n</tool_call>"  # noqa: E501
    ),
    lambda why, act: f"I answer in this form:\nACTION: the action\n\nREASON: {why}\nACTION: {act}",
)
# Styles for the lines of a plan.
PLAN: tuple[_Style, ...] = (
    lambda plan, end: f"{plan}\n{end}",
    lambda plan, end: f"{_each(plan, '{n}. {line}')}\n{end}",
    lambda plan, end: f"{_each(plan, '- {line}')}\n{end}",
    lambda plan, end: f"{_each(plan, '`{line}`')}\n{end}",
    lambda plan, end: f"{_each(plan, '{n}. `{line}`')}",
    lambda plan, end: f"{_FENCE}\n{plan}\n{end}\n{_FENCE}",
    lambda plan, end: (
        f"Here are the actions:\n\n{_FENCE}plaintext\n{plan}\n{_FENCE}\n\nThen the page changes."
    ),
    lambda plan, end: f"Here are the actions:\n\n{plan}\n{end}",
    lambda plan, end: f"**Actions:**\n\n{_each(plan, '**{line}**')}\n\n{end}",
    lambda plan, end: f"### Plan\n\n{_each(plan, 'Step {n}: {line}')}\n\n{end}",
    lambda plan, end: f"<think>\nclick id=99999 is wrong.\n</think>\n{plan}\n{end}",
    lambda plan, end: f"The goal asks for this, so I do it at once.\n\n{plan}\n{end}<|im_end|>",
    lambda plan, end: f"以下是操作步骤：\n{plan}\n{end}",
    lambda plan, end: json.dumps(
        {"reasoning": "so", "actions": [{"action": line} for line in plan.splitlines()]}
    ),
)
NOTHING = (
    "[eod]",
    f"{_FENCE}\n[eod]\n{_FENCE}",
    "No further actions are needed.\n[eod]",
    "<think>Done.</think>\n[eod]",
    "[EOD]",
)
# Styles for a block of Python.
BLOCK: tuple[Callable[[str], str], ...] = (
    lambda code: f"{_FENCE}\n{code}\n{_FENCE}",
    lambda code: f"{_FENCE}python\n{code}\n{_FENCE}",
    lambda code: (
        f"Sure! Here is the code:\n\n{_FENCE}python\n{code}\n{_FENCE}\n\nIt does what the task "
        "asks for."
    ),
    lambda code: f"**Action:**\n\n{_FENCE}python\n{code}\n{_FENCE}",
    lambda code: (
        f"### Solution\n\n{_FENCE}py\n{code}\n{_FENCE}\n\n### Explanation\n1. It goes by the page."
    ),
    lambda code: (
        f"<think>\n{_FENCE}\nagent.press('x')\n{_FENCE}\n</think>\n{_FENCE}python\n{code}\n{_FENCE}<|im_end|>"
    ),
    lambda code: f"代码如下：\n{_FENCE}python\n{code}\n{_FENCE}",
    lambda code: f"Apologies for the confusion.\n{_FENCE}python\n{code}\n{_FENCE}",
)
LESSON: tuple[_Style, ...] = (
    lambda index, line: f"For action index={index}, you should {line}",
    lambda index, line: (
        f"The attempt went wrong early.\n\n**For action index={index}, you should `{line}`.**"
    ),
    lambda index, line: (
        f"<think>index=99?</think>\nFor action index={index}, you should {line}.<|im_end|>"
    ),
    lambda index, line: f"{_FENCE}\nFor action index={index}, you should {line}\n{_FENCE}",
    lambda index, line: json.dumps({"index": int(index), "action": line}),
)
# Styles for a choice among candidates, as MindAct and Self-MAP request it: the letter, the
# operation (none if nothing is chosen) and the value.
CHOICE: tuple[Callable[[str, str, str], str], ...] = (
    lambda letter, do, value: _labelled(letter, do, value, "{label}: {said}", "{letter}."),
    lambda letter, do, value: _labelled(letter, do, value, "**{label}:** {said}", "{letter}."),
    lambda letter, do, value: _labelled(letter, do, value, "**{label}**: {said}", "{letter}"),
    lambda letter, do, value: _labelled(letter, do, value, "- {label}: `{said}`", "{letter}"),
    lambda letter, do, value: _labelled(
        letter, do, value, "{label}: **{said}**", "Option {letter}"
    ),
    lambda letter, do, value: (
        f"{_FENCE}\n{_labelled(letter, do, value, '{label}: {said}', '{letter}.')}\n{_FENCE}"
    ),
    lambda letter, do, value: (
        "The request names it, and no other element fits.\n\n"
        f"{_labelled(letter, do, value, '{label}: {said}', '{letter}.')}<|im_end|>"
    ),
    lambda letter, do, value: (
        "<think>\nAnswer: Z.? No.\n</think>\n\n"
        f"{_labelled(letter, do, value, '{label}: {said}', '{letter}.')}"
    ),
    lambda letter, do, value: json.dumps(
        {"answer": letter, **({"action": do, "value": value or None} if do else {})}
    ),
    lambda letter, do, value: "\n".join(
        (
            f"{_FENCE}json",
            json.dumps({"Answer": letter, "Action": do, "Value": value}, indent=2),
            _FENCE,
        )
    ),
    lambda letter, do, value: _labelled(
        letter, do, value, "{label}: {said}", "{letter}.", ("答案", "动作", "值")
    ),
    lambda letter, do, value: _labelled(
        letter, do, value, "{label}: {said}", "{letter}.", ("Antwort", "Aktion", "Wert")
    ),
    lambda letter, do, value: (
        f"{_labelled(letter, do, value, '{label}: {said}', '{letter}.')}\n\n"
        "Task: Another one\nAnswer: B.\nAction: CLICK"
    ),
)


class ChatStyled:
    """Wraps a model and rephrases its answers as chat models do.

    Args:
        model: The model that knows the answers.
        seed: Another seed phrases otherwise.
        unreadable: The share of the first tries at an answer that are an apology instead, in [0,
            1].
    """

    def __init__(self, model: LanguageModel, *, seed: int = 0, unreadable: float = 0.0) -> None:
        self._model, self._seed, self._unreadable = model, seed, unreadable
        self.styles: set[str] = set()

    @property
    def name(self) -> str:
        """The name of the model in records."""
        return f"chat-styled {self._model.name}"

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Returns the other model's answer in a style. Answers to repair requests are styled
        too.
        """
        again = messages[-1].role == "user" and str(messages[-1].parts[0]).startswith(
            "That cannot be used"
        )
        asked = messages[:-2] if again else messages
        reply = await self._model.complete(asked, form=form, max_tokens=max_tokens, prompt=prompt)
        text = "\n".join(str(part) for message in messages for part in message.parts)
        random = Random(
            hashlib.sha256(f"{self._seed}\0{text}".encode("utf-8", "surrogatepass")).digest()
        )
        if not again and random.random() < self._unreadable:
            return replace(reply, text=SORRY)
        return replace(reply, text=self._styled(reply.text, str(messages[0].parts[0]), random))

    def _styled(self, said: str, system: str, random: Random) -> str:
        if found := _STEP.fullmatch(said):
            return self._one("step", STEP, random)(found[1], found[2])
        if system.startswith("You plan what is done"):
            plan = said.partition("[eod]")[0].strip()
            return (
                self._one("plan", PLAN, random)(plan, "[eod]") if plan else random.choice(NOTHING)
            )
        if found := _LESSON.fullmatch(said):
            return self._one("lesson", LESSON, random)(found[1], found[2])
        if (found := _BLOCK.fullmatch(said)) and found[1].strip():
            return self._one("block", BLOCK, random)(found[1])
        if found := _CHOICE.fullmatch(said):
            return self._one("choice", CHOICE, random)(found[1], found[2] or "", found[3] or "")
        return said  # words or a number: not an answer in any grammar

    def _one(self, kind: str, styles: Sequence[T], random: Random) -> T:
        place = random.randrange(len(styles))
        self.styles.add(f"{kind} {place}")
        return styles[place]


def step(seed: int = 0, unreadable: float = 0.0) -> ChatStyled:
    """Returns a model for the policy `step` on MiniWoB++."""
    return ChatStyled(ProgrammaticStep(), seed=seed, unreadable=unreadable)


def shop(seed: int = 0, unreadable: float = 0.0) -> ChatStyled:
    """Returns a model for the policy `step` on the local shop, its related sites and the airline's
    site.
    """
    return ChatStyled(ProgrammaticShop(), seed=seed, unreadable=unreadable)


def structured(seed: int = 0, unreadable: float = 0.0) -> ChatStyled:
    """Returns a model for the policy `structured-reflection`."""
    return ChatStyled(StructuredPlanner(), seed=seed, unreadable=unreadable)


def synapse(seed: int = 0, unreadable: float = 0.0) -> ChatStyled:
    """Returns a model for the policy `synapse`."""
    return ChatStyled(ExemplarFollower(), seed=seed, unreadable=unreadable)


def _arguments(action: str) -> dict[str, str]:
    """Returns the arguments of an action, by names in its order."""
    return {
        name: one
        for name, one in zip(
            ("id", "text", "enter"), re.findall(r"\[(.*?)\](?= \[|$)", action), strict=False
        )
    }


def _labelled(
    letter: str,
    do: str,
    value: str,
    line: str,
    named: str,
    labels: tuple[str, str, str] = ("Answer", "Action", "Value"),
) -> str:
    said = (named.format(letter=letter), do, value)
    return "\n".join(
        line.format(label=label, said=one) for label, one in zip(labels, said, strict=True) if one
    )


def _each(plan: str, form: str) -> str:
    return "\n".join(
        form.replace("{n}", str(n)).replace("{line}", line)
        for n, line in enumerate(plan.splitlines(), 1)
    )
