"""Readers of the replies of published protocols: by the authors' rule, and by prill's.

`READERS` has them by the name that a preset's stage gives. A verdict is read twice: `official`
follows the authors' code to the letter, with its mistakes; `parse` accepts only a clear verdict and
raises UnparsableError otherwise. The rules were read in public code, named in each docstring, and
are written for prill.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from prill.errors import UnparsableError
from prill.models.replies import RecordFormat, ReplyFormat, excerpt
from prill.protocols import Form, Reply
from prill.types import Answer, Findings

_LEAST_REWARD = 4  # of 5: the least reward of a success in NNetNav's port and in its pruning
_TAG_WORDS = {
    **dict.fromkeys(("successful", "success", "yes"), True),
    **dict.fromkeys(("unsuccessful", "failure", "no"), False),
}


@dataclass(frozen=True)
class PlainText:
    """A reply in free text, in the form that the prompt itself describes."""

    tagged = True

    def json_schema(self) -> dict[str, Any]:
        """Returns the schema of a text; it is never sent."""
        return {"type": "string"}

    def instructions(self, *, as_json: bool) -> str:
        """Returns no instruction."""
        return ""

    def parse(self, text: str) -> dict[str, str]:
        """Returns the text as the field `text`."""
        return {"text": text}


PLAIN: Form = PlainText()


@dataclass(frozen=True, slots=True)
class Reading:
    """A verdict by prill's reading: success, the judge's reasoning, and other findings in the
    reply.
    """

    success: bool
    reason: str
    findings: Findings = field(default_factory=Findings)


class VerdictReader(ABC):
    """Reads the reply with the verdict."""

    form: Form = PLAIN

    @abstractmethod
    def official(self, text: str) -> bool | None:
        """Returns the authors' label of a reply; None if their code gives none or stops."""

    @abstractmethod
    def read(self, reply: Reply) -> Reading:
        """Returns the verdict of a reply. Raises UnparsableError if it has no clear verdict."""


_STATUS = ReplyFormat("thoughts", "status", ("success", "failure"), tagged=True)


class StatusReader(VerdictReader):
    """Two lines, Thoughts and Status, as Online-Mind2Web's code reads them.

    A success is any text after the first `status:`, up to a second one, that contains `success` in
    any case; so `unsuccessful` is one too. Everything else is a failure. Source: microsoft/fara
    `extract_predication` in `webeval/src/webeval/benchmarks/om2w/impl/src/utils.py`, vendored from
    OSU-NLP-Group/Online-Mind2Web.
    """

    def official(self, text: str) -> bool | None:
        """Returns the label of Online-Mind2Web's code."""
        parts = text.lower().split("status:")
        return len(parts) > 1 and "success" in parts[1]

    def read(self, reply: Reply) -> Reading:
        """Returns the last status, which must be one of the two words."""
        fields = _STATUS.parse(reply.text)
        return Reading(fields["status"] == "success", fields["thoughts"] or reply.text)


class PaperStatusReader(StatusReader):
    """The same lines as arXiv 2404.06474's scripts read them.

    The first line that starts with `Status:` counts, without quotation marks; `success` and
    `Success` are successes, everything else is a failure. Source: Berkeley-NLP/Agent-Eval-Refine
    `agent_eval/agent_eval/eval/evaluator.py` and `agent_eval/scripts/run_eval_web.py`.
    """

    def official(self, text: str) -> bool | None:
        """Returns the label of the paper's scripts."""
        line = next((line for line in text.splitlines() if line.startswith("Status:")), "")
        return line.removeprefix("Status:").strip().replace('"', "") in ("success", "Success")


class WordReader(VerdictReader):
    """SUCCESS or NOT SUCCESS anywhere in the reply, case-sensitive, as WebVoyager's code reads it.

    Source: MinorJerry/WebVoyager `evaluation/auto_eval.py`: a reply with neither has no label. A
    reply with `UNSUCCESSFUL` contains SUCCESS and so is a success.
    """

    _WORD = re.compile(r"\b(NOT\W+)?SUCCESS\b")
    # Small models repeat the question: "SUCCESS or NOT SUCCESS?" is no verdict.
    _OFFER = re.compile(r"\b(NOT\W+)?SUCCESS\W+or\W+(NOT\W+)?SUCCESS\b", re.IGNORECASE)

    def official(self, text: str) -> bool | None:
        """Returns the label of WebVoyager's code."""
        if "NOT SUCCESS" in text:
            return False
        return True if "SUCCESS" in text else None

    def read(self, reply: Reply) -> Reading:
        """Returns the last verdict in the reply, as whole words."""
        given = self._OFFER.sub(lambda offer: " " * len(offer[0]), reply.text)
        found = list(self._WORD.finditer(given))
        if not found:
            raise UnparsableError(f"no SUCCESS or NOT SUCCESS in the reply: {excerpt(reply.text)}")
        return Reading(found[-1][1] is None, reply.text[: found[-1].start()].strip() or reply.text)


class TagReader(VerdictReader):
    """Tags for reasoning and four closed questions, as AgentRewardBench's code reads them.

    The first opening to the first closing tag `success` counts, without quotation marks. No tags,
    or nothing between them, are a failure. Grades of optimality are read here too: `complete
    failure` becomes a 1 and so a success, `partially successful` a 3, which counts as neither, like
    `n/a`. Other words stop the scoring: no label. Source: McGill-NLP/agent-reward-bench
    `parse_judgment` in `agent_reward_bench/judge/__init__.py`, `numerize` in
    `agent_reward_bench/eval/metrics.py`.
    """

    _QUESTIONS: ClassVar = {"side": "unintended side effects", "loop": "loop of actions"}
    _OFFICIAL: ClassVar = {**_TAG_WORDS, "unsuccesful": False}

    def official(self, text: str) -> bool | None:
        """Returns the label of AgentRewardBench's code."""
        start, end = text.find("<success>"), text.find("</success>")
        inside = text[start + len("<success>") : end] if start >= 0 and end >= 0 else ""
        if not inside:
            return False
        word = re.sub(r"[\"']", "", inside.strip().lower())
        if word in self._OFFICIAL:
            return self._OFFICIAL[word]
        return True if word.startswith("1.") or "complete failure" in word else None

    def read(self, reply: Reply) -> Reading:
        """Returns the last verdict in tags; the other questions are findings."""
        word = _last_tag(reply.text, "success").strip(" \t\r\n\"'*_.").lower()
        if word not in _TAG_WORDS:
            raise UnparsableError(f"no verdict in <success>: {excerpt(reply.text)}")
        answers = []
        for tag, question in self._QUESTIONS.items():
            answer = _last_tag(reply.text, tag).strip(" \t\r\n\"'*_.").lower()
            answers.append(Answer(question=question, value={"yes": True, "no": False}.get(answer)))
        level = re.match(r"\s*([1-4])", _last_tag(reply.text, "optimal"))
        answers.append(
            Answer(question="optimality, 1 to 4", value=int(level[1]) if level else None)
        )
        reason = _last_tag(reply.text, "reasoning").strip() or reply.text
        return Reading(_TAG_WORDS[word], reason, Findings(answers=tuple(answers)))


def _last_tag(text: str, tag: str) -> str:
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL | re.IGNORECASE)
    return str(found[-1]) if found else ""


class RewardReader(VerdictReader):
    """A reward from 1 to 5; 4 and 5 are successes, as AgentRewardBench's port of NNetNav reads it.

    All text after the first `Reward:` must be digits, else the port stops in a debugger, as it does
    without `Reward:`; there is no label then. Source: McGill-NLP/agent-reward-bench
    `parse_nnetnav_judgment` in `agent_reward_bench/judge/__init__.py`, after MurtyShikhar/NNetnav
    `evaluation/run_lm_reward.py`.
    """

    _REWARD = re.compile(r"reward[ \t*_\"']*:[ \t*_\"'\[(]*([1-5])(?![\d.])", re.IGNORECASE)

    def official(self, text: str) -> bool | None:
        """Returns the label of the port."""
        digits = text.partition("Reward:")[2].strip()
        return int(digits) >= _LEAST_REWARD if digits.isdigit() and digits.isascii() else None

    def read(self, reply: Reply) -> Reading:
        """Returns the last reward, which may be followed by `/5` or words."""
        found = list(self._REWARD.finditer(reply.text))
        if not found:
            raise UnparsableError(f"no reward from 1 to 5 in the reply: {excerpt(reply.text)}")
        reason = re.sub(r"^\s*thoughts?:", "", reply.text[: found[-1].start()], flags=re.IGNORECASE)
        return Reading(
            int(found[-1][1]) >= _LEAST_REWARD, f"{reason.strip()} [reward {found[-1][1]} of 5]"
        )


def _object(text: str) -> dict[str, Any]:
    """Returns the JSON object of a text; empty if it is none."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


@dataclass(frozen=True, slots=True)
class Judgement:
    """browser-use's reply."""

    reasoning: str
    verdict: bool
    failure_reason: str
    impossible_task: bool
    reached_captcha: bool


@dataclass(frozen=True, slots=True)
class _PublishedJudgement:
    """Its fields as browser-use validates them: only the verdict is required."""

    verdict: bool
    reasoning: str | None = None
    failure_reason: str | None = None
    impossible_task: bool = False
    reached_captcha: bool = False


class JudgementReader(VerdictReader):
    """One JSON object with a boolean verdict, as browser-use's code validates it.

    A reply that is not such an object has no label; texts such as "true" are converted. Source:
    browser-use/browser-use `JudgementResult` in `browser_use/agent/views.py`, and
    `browser_use/agent/service.py`, where a failed judgement is None.
    """

    form: Form = RecordFormat(
        Judgement,
        '{"reasoning": "<your analysis>", "verdict": true or false, "failure_reason": "<at most 5 '
        'sentences, empty for a success>", "impossible_task": true or false, "reached_captcha": '
        "true or false}",
    )
    # what pydantic reads as a boolean besides true and false
    _WORDS: ClassVar = {
        **dict.fromkeys(("true", "yes", "y", "on", "t", "1"), True),
        **dict.fromkeys(("false", "no", "n", "off", "f", "0"), False),
    }

    def official(self, text: str) -> bool | None:
        """Returns the label of browser-use's code."""
        record = _object(text)
        for name in ("verdict", "impossible_task", "reached_captcha"):
            value = record.get(name)
            if isinstance(value, str):
                record[name] = self._WORDS.get(value.lower(), value)
            elif isinstance(value, int | float) and value in (0, 1):
                record[name] = bool(value)
        try:
            return msgspec.convert(record, _PublishedJudgement).verdict
        except msgspec.ValidationError:
            return None

    def read(self, reply: Reply) -> Reading:
        """Returns the last such object's verdict; a captcha or an impossible task is a finding."""
        record = msgspec.json.decode(reply.fields["record"], type=Judgement)
        obstacles = {"captcha": record.reached_captcha, "impossible task": record.impossible_task}
        found = ", ".join(name for name, met in obstacles.items() if met) or None
        reason = record.reasoning if record.verdict else record.failure_reason or record.reasoning
        return Reading(record.verdict, reason, Findings(not_executable=found))


# The Universal Verifier's records


@dataclass(frozen=True, slots=True)
class RubricItem:
    """A criterion of a rubric; one with a condition counts only if the condition is met."""

    criterion: str
    description: str
    max_points: Annotated[int, Meta(ge=1)]
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class Rubric:
    """The criteria of a task."""

    items: Annotated[tuple[RubricItem, ...], Meta(min_length=1)]


@dataclass(frozen=True, slots=True)
class ItemScore:
    """The points of a criterion, by its number from 1."""

    criterion: int
    condition_met: bool
    earned_points: float
    justification: str


@dataclass(frozen=True, slots=True)
class Scores:
    """The points of all criteria."""

    items: tuple[ItemScore, ...]


@dataclass(frozen=True, slots=True)
class Relevance:
    """The relevance of a frame to a criterion, from 0 to 10."""

    criterion: int
    score: Annotated[int, Meta(ge=0, le=10)]


@dataclass(frozen=True, slots=True)
class FrameRelevance:
    """The relevance of a frame to all criteria."""

    scores: tuple[Relevance, ...]


@dataclass(frozen=True, slots=True)
class ItemNote:
    """A note on a criterion, by its number from 1."""

    criterion: int
    note: str


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes on criteria: what a frame shows for each, or what the task meant in reality."""

    notes: tuple[ItemNote, ...]


@dataclass(frozen=True, slots=True)
class ConditionMet:
    """Whether the condition of a criterion holds."""

    criterion: int
    condition_met: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of all conditional criteria."""

    conditions: tuple[ConditionMet, ...]


@dataclass(frozen=True, slots=True)
class SideEffect:
    """An unrequested change that no criterion has penalised."""

    description: str
    max_points: Annotated[int, Meta(ge=1)]


@dataclass(frozen=True, slots=True)
class SideEffects:
    """All such changes."""

    side_effects: tuple[SideEffect, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run, apart from the points."""

    primary_intent: str
    reasoning: str
    output_success: bool


class OutcomeReader(VerdictReader):
    """One JSON object with a boolean `output_success`, as the Universal Verifier's code reads it.

    A reply without it has no label, after five tries there. Source: microsoft/fara
    `webeval/src/webeval/rubric_agent/mm_rubric_agent.py`.
    """

    form: Form = RecordFormat(
        Outcome,
        '{"primary_intent": "<what the user wanted>", "reasoning": "<why>", "output_success": '
        "true or false}",
    )

    def official(self, text: str) -> bool | None:
        """Returns the label of the Universal Verifier's code."""
        value = _object(text).get("output_success")
        return value if isinstance(value, bool) else None

    def read(self, reply: Reply) -> Reading:
        """Returns the last such object's outcome."""
        record = msgspec.json.decode(reply.fields["record"], type=Outcome)
        return Reading(record.output_success, record.reasoning)


# Replies before the verdict


def read_key_points(text: str) -> str:
    """Returns WebJudge's key points.

    They are the text between the first and second bold `**Key Points**:`, else the text after the
    last `Key Points:`, else the whole reply, without indentation. Source: microsoft/fara
    `…/om2w/impl/src/methods/webjudge_online_mind2web.py`.
    """
    text = text.replace("\n\n", "\n")
    parts = text.split("**Key Points**:")
    points = parts[1] if len(parts) > 1 else text.split("Key Points:")[-1]
    return "\n".join(line.lstrip() for line in points.splitlines()).strip()


@dataclass(frozen=True, slots=True)
class Grade:
    """A frame's grade (0: the reply had none), and the description of what it shows."""

    score: int
    description: str = ""


def read_grade(text: str) -> Grade:
    """Returns WebJudge's grade of a frame.

    It is the first digit from 1 to 5 between the first and second `Score`, case-sensitive; so an
    earlier word such as `Scoreboard` counts. The description follows the last `**Reasoning**:`, up
    to a blank line. Source: microsoft/fara `…/om2w/impl/src/methods/webjudge_online_mind2web.py`.
    """
    parts = text.split("Score")
    found = re.search(r"[1-5]", parts[1]) if len(parts) > 1 else None
    description = text.split("**Reasoning**:")[-1].strip().lstrip("\n").split("\n\n")[0]
    return Grade(int(found[0]) if found else 0, description.replace("\n", " "))


@dataclass(frozen=True)
class StageReader:
    """Reads the replies of a stage before the verdict.

    `read` makes the stage's result from a reply; `typical` is such a result, for plans, and
    `missing` that of an optional call whose reply cannot be read.
    """

    form: Form
    read: Callable[[Reply], Any]
    typical: Any
    missing: Any = None


def _record(type_: type[Any], shape: str, typical: Any, missing: Any = None) -> StageReader:
    form = RecordFormat(type_, shape)
    return StageReader(form, form.read, typical, missing)


_LONG = "x" * 497
_SIX = tuple(RubricItem("x" * 60, "x" * 200, 5, None) for _ in range(6))
_NOTES = Notes(tuple(ItemNote(i + 1, "x" * 300) for i in range(6)))
_SCORED = Scores(tuple(ItemScore(i + 1, True, 5, "x" * 200) for i in range(6)))
_POINTS = (
    '{"items": [{"criterion": <its number>, "condition_met": <true if it has no condition>, '
    '"earned_points": <points>, "justification": "<why>"}, …]}'
)
_RUBRIC = (
    '{"items": [{"criterion": "<name>", "description": "<what earns points>", "max_points": '
    '<number>, "condition": <null, or when it applies>}, …]}'
)
READERS: Mapping[str, VerdictReader | StageReader] = {
    "status": StatusReader(),
    "paper_status": PaperStatusReader(),
    "words": WordReader(),
    "tags": TagReader(),
    "reward": RewardReader(),
    "judgement": JudgementReader(),
    "outcome": OutcomeReader(),
    "text": StageReader(PLAIN, lambda reply: reply.text.strip(), _LONG, ""),
    "key_points": StageReader(PLAIN, lambda reply: read_key_points(reply.text), _LONG),
    "grade": StageReader(PLAIN, lambda reply: read_grade(reply.text), Grade(5, _LONG), Grade(0)),
    "rubric": _record(Rubric, _RUBRIC, Rubric(_SIX)),
    "scores": _record(Scores, _POINTS, _SCORED, Scores(())),
    "relevance": _record(
        FrameRelevance,
        '{"scores": [{"criterion": <its number>, "score": <0 to 10>}, …]}',
        FrameRelevance(tuple(Relevance(i + 1, 10) for i in range(6))),
        FrameRelevance(()),
    ),
    "notes": _record(
        Notes, '{"notes": [{"criterion": <its number>, "note": "<text>"}, …]}', _NOTES, Notes(())
    ),
    "conditions": _record(
        Conditions,
        '{"conditions": [{"criterion": <its number>, "condition_met": true or false, "reason": '
        '"<why>"}, …]}',
        Conditions(()),
        Conditions(()),
    ),
    "side_effects": _record(
        SideEffects,
        '{"side_effects": [{"description": "<what>", "max_points": <points lost>}, …]}',
        SideEffects(()),
        SideEffects(()),
    ),
}


def resolve_conditions(scores: Scores, conditions: Conditions) -> Scores:
    """Returns the scores with the conditions that were decided over all evidence."""
    met = {one.criterion: one.condition_met for one in conditions.conditions}
    return Scores(
        tuple(
            replace(item, condition_met=met.get(item.criterion, item.condition_met))
            for item in scores.items
        )
    )
