"""What a reply may say: the readers of replies, by the name that a page's stage gives.

A published verdict is read twice: `official` follows the authors' code to the letter, with its
mistakes; `read` accepts only a clear verdict and raises UnparsableError otherwise. The rules were
read in public code, named in each docstring, and are written for prill.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, fsum
from statistics import fmean
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec
from msgspec import Meta

from prill.errors import NoEvidenceError, UnparsableError
from prill.evaluators.criteria import ASSESSMENT, RELEVANCE, RUBRIC, RubricCriterion, make_judgement
from prill.evaluators.criteria import Rubric as GoalRubric
from prill.evaluators.evidence import Frame
from prill.evaluators.judgement import Judgement, compute_rewards
from prill.evaluators.questions import YES_NO, AnswersFormat, format_value, read_answers
from prill.evaluators.slots import Scene
from prill.models.replies import (
    GivenReply,
    RecordFormat,
    ReplyFormat,
    WordFormat,
    choice_probability,
    excerpt,
    word_probability,
)
from prill.protocols import Form, Reply, Token
from prill.types import Answer, Criterion, Findings, FrameGrade, Label, StepVerdict

_T = TypeVar("_T")
OUTCOMES = ("success", "failure")
INSUFFICIENT = "insufficient-evidence"  # unscored: the record does not show the outcome
STATUS = ReplyFormat("thoughts", "status", (*OUTCOMES, INSUFFICIENT))
PAPER_STATUS = ReplyFormat("thoughts", "status", OUTCOMES, tagged=True)
STATED_STATUS = replace(
    STATUS,
    number="probability",
    number_means="how likely it is that the request was carried out",
    number_of=OUTCOMES,
)
WORD = WordFormat("status", (*OUTCOMES, INSUFFICIENT))
BARE_WORD = replace(WORD, tagged=True)
LABELS: dict[str, Label] = {
    "towards-the-goal": "towards",
    "not-sure": "not_sure",
    "goal-reached": "reached",
    "away-from-the-goal": "away",
}
STEP = ReplyFormat("thoughts", "response", tuple(LABELS))
STEP_WORD = WordFormat("response", tuple(LABELS), tagged=True)
_REACHED = "goal-reached"
YES, PART, NO = "yes", "in-progress", "no"
ITEM = WordFormat("done", (YES, PART, NO))
_HALF = 0.5  # the weight of "In Progress", as in Web-Shepherd
_TOLERANCE = 0.05  # changes of the progress up to this value count as no change
# The score of `given` is the geometric mean of so many probabilities, the lowest: one wrong word of
# a long request counts as much as one of a short request.
_LOWEST = 3
_SHOWN = 60  # characters of the request around its least likely token, in the reason
_WORD_TOKENS = 32  # enough for the longest word and its surrounding text in any tokenizer
_LEAST_REWARD = 4  # of 5: the least reward of a success in NNetNav's port and in its pruning
_TAG_WORDS = {
    **dict.fromkeys(("successful", "success", "yes"), True),
    **dict.fromkeys(("unsuccessful", "failure", "no"), False),
}


@dataclass(frozen=True)
class PlainText:
    """A reply in free text, in the form that the prompt itself describes.

    `outcomes` are its words for success and failure, and `shape` is such a reply with `{verdict}`
    and `{reason}`; empty: it has no verdict.
    """

    outcomes: tuple[str, ...] = ()
    shape: str = ""
    tagged = True

    def write(self, verdict: str, reason: str) -> str:
        """Returns the reply with this verdict and reason."""
        return self.shape.format(verdict=verdict, reason=" ".join(reason.split()))

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


class StageReader(ABC):
    """Reads the replies of a stage. `typical` is a result for plans."""

    typical: Any = None
    form: Form = PLAIN
    reads_criteria = False  # which a user may supply

    def form_of(self, how: Mapping[str, Any]) -> Form:
        """Returns the form of the replies to a judge with these keys."""
        return self.form

    def make_form(self, scene: Scene) -> Form:
        """Returns the form of the reply to a call."""
        return self.form_of(scene.how)

    def texts(self, how: Mapping[str, Any]) -> list[str]:
        """Returns what the judge's fingerprint has of the form."""
        return [self.form_of(how).instructions(as_json=as_json) for as_json in (True, False)]

    def tokens(self, scene: Scene, most: int) -> int:
        """Returns the maximum tokens of a reply."""
        return most

    @abstractmethod
    def read(self, reply: Reply, scene: Scene, subject: Mapping[str, Any]) -> Any:
        """Returns the result of a reply. Raises UnparsableError."""

    def missing(self, error: UnparsableError, scene: Scene, subject: Mapping[str, Any]) -> Any:
        """Returns the result of an optional call whose reply cannot be read."""
        raise error

    def official(self, text: str) -> bool | None:
        """Returns the authors' label of a reply; None if their code gives none or stops."""
        return None

    def settle(self, results: Sequence[Any], scene: Scene) -> Sequence[Any]:
        """Returns the results of a stage. Raises UnparsableError if too many are missing."""
        return results


class LastReader(StageReader):
    """Reads the replies of the last stage, and concludes."""

    reads_probabilities: bool = False

    def requires(self, scene: Scene) -> None:
        """Raises NoEvidenceError for evidence that the conclusion would lack."""

    def conclude(self, scene: Scene, results: Sequence[Any]) -> Judgement:
        """Returns the judgement; without a rule of its own, the result of the only call. Raises
        NoEvidenceError, UnparsableError.
        """
        [judgement] = results
        assert isinstance(judgement, Judgement)
        return judgement


@dataclass(frozen=True, slots=True)
class Reading:
    """A verdict by prill's reading: success, the judge's reasoning, other findings in the reply,
    and the probability of success, if the reply has one.
    """

    success: bool
    reason: str
    findings: Findings = field(default_factory=Findings)
    score: float | None = None


class VerdictReader(LastReader):
    """Reads the reply with the verdict."""

    def read(self, reply: Reply, scene: Scene, subject: Mapping[str, Any]) -> Reading:
        """Returns the verdict of a reply. Raises UnparsableError if it has no clear verdict, and
        NoEvidenceError if the model says that it cannot tell.
        """
        return self.verdict(reply, scene.how)

    @abstractmethod
    def verdict(self, reply: Reply, how: Mapping[str, Any]) -> Reading:
        """Returns the verdict of a reply. Raises UnparsableError, NoEvidenceError."""

    def rewards(self, success: bool, scene: Scene) -> tuple[float, ...] | None:
        """Returns the rewards of the steps; published judges give none."""
        return None

    def conclude(self, scene: Scene, results: Sequence[Reading]) -> Judgement:
        """Returns the verdict with the findings of earlier stages."""
        [reading] = results
        findings, notes = _findings(scene, reading.findings)
        score = float(reading.success) if reading.score is None else reading.score
        return Judgement(
            reading.success,
            round(min(1.0, max(0.0, score)), 6),
            "".join([reading.reason, scene.remark, *notes]),
            rewards=self.rewards(reading.success, scene),
            findings=None if findings == Findings() else findings,
        )


def _findings(scene: Scene, findings: Findings) -> tuple[Findings, list[str]]:
    """Returns the findings with those of earlier stages, and notes for the reason."""
    results, notes = scene.results, []
    if points := results.get("points"):
        lines = (line.strip() for line in str(points).splitlines())
        findings = replace(findings, key_points=tuple(line for line in lines if line))
    if grades := results.get("grades"):
        findings, unread = replace(findings, frames=_graded(scene.frames, grades)), _unread(grades)
        if unread:
            notes.append(f" [{unread} of {len(grades)} frames without a grade were left out]")
    if "rubric" in results:
        criteria, share = compute_points(results)
        effects = tuple(effect.description for effect in results["effects"].side_effects)
        findings = replace(findings, criteria=criteria, process=share, side_effects=effects)
    return findings, notes


def _graded(frames: Sequence[Frame], grades: Sequence[Grade]) -> tuple[FrameGrade, ...]:
    return tuple(
        FrameGrade(frame.states, grade.scores, grade.description)
        for frame, grade in zip(frames, grades, strict=bool(grades))
    )


def _unread(grades: Sequence[Grade]) -> int:
    return sum(not grade.scores for grade in grades)


class _OutcomeJudgement(VerdictReader):
    """prill's own verdict: success, failure or insufficient-evidence.

    The option `form` asks for thoughts and the status, or the status alone; `probability` for a
    number, or the probability of the status's token.
    """

    reads_probabilities = True
    form = STATUS

    def form_of(self, how: Mapping[str, Any]) -> ReplyFormat | WordFormat:
        if how.get("form", "thoughts") != "thoughts":
            return WORD if how["form"] == "verdict" else BARE_WORD
        return STATED_STATUS if how.get("probability") == "stated" else STATUS

    def rewards(self, success: bool, scene: Scene) -> tuple[float, ...] | None:
        return compute_rewards(success, len(scene.run.steps)) or None

    def tokens(self, scene: Scene, most: int) -> int:
        word = isinstance(self.form_of(scene.how), WordFormat)
        return min(most, _WORD_TOKENS) if word else most

    def verdict(self, reply: Reply, how: Mapping[str, Any]) -> Reading:
        form = self.form_of(how)
        status = reply.fields[form.verdict]
        reason = reply.fields[form.text] if isinstance(form, ReplyFormat) else ""
        score = _chance(reply, form, status)
        if status == INSUFFICIENT:
            error = NoEvidenceError(
                f"the judge says that the evidence is insufficient{reason and ': '}{reason}"
            )
            error.findings = None if score is None else Findings(probability=score)
            raise error
        return Reading(status == "success", reason, score=score)


def _chance(reply: Reply, form: ReplyFormat | WordFormat, status: str) -> float | None:
    """Returns P(success), in [0, 1], if the reply contains it, else None."""
    if isinstance(form, ReplyFormat) and form.number:
        return int(reply.fields[form.number]) / 100
    found = _share(reply.tokens, form, "success", status, OUTCOMES) if reply.tokens else None
    return None if found is None else round(min(1.0, max(0.0, found)), 6)


def _share(
    tokens: Sequence[Token],
    form: ReplyFormat | WordFormat,
    wanted: str,
    said: str,
    among: tuple[str, ...] = (),
) -> float | None:
    """Returns the probability of a choice, among some or all, if the tokens have it."""
    choices = among or form.choices
    if isinstance(form, WordFormat):
        return word_probability(tokens, choices, wanted, said)
    return choice_probability(tokens, form.verdict, choices, wanted, said)


class _StatusReader(VerdictReader):
    """Two lines, Thoughts and Status, as Online-Mind2Web's code reads them.

    A success is any text after the first `status:`, up to a second one, that contains `success` in
    any case; so `unsuccessful` is one too. Everything else is a failure. Source: microsoft/fara
    `extract_predication` in `webeval/src/webeval/benchmarks/om2w/impl/src/utils.py`, vendored from
    OSU-NLP-Group/Online-Mind2Web.
    """

    form = PlainText(OUTCOMES, "Thoughts: {reason}\nStatus: {verdict}")

    def official(self, text: str) -> bool | None:
        parts = text.lower().split("status:")
        return len(parts) > 1 and "success" in parts[1]

    def verdict(self, reply: Reply, how: Mapping[str, Any]) -> Reading:
        fields = PAPER_STATUS.parse(reply.text)
        return Reading(fields["status"] == "success", fields["thoughts"] or reply.text)


class _PaperStatusReader(_OutcomeJudgement):
    """Two lines, Thoughts and Status, as arXiv 2404.06474's scripts read them.

    The first line that starts with `Status:` counts, without quotation marks; `success` and
    `Success` are successes, everything else is a failure. Source: Berkeley-NLP/Agent-Eval-Refine
    `agent_eval/agent_eval/eval/evaluator.py` and `agent_eval/scripts/run_eval_web.py`.
    """

    form = PAPER_STATUS

    def official(self, text: str) -> bool | None:
        line = next((line for line in text.splitlines() if line.startswith("Status:")), "")
        return line.removeprefix("Status:").strip().replace('"', "") in ("success", "Success")

    def form_of(self, how: Mapping[str, Any]) -> ReplyFormat:
        return PAPER_STATUS


class _WordReader(VerdictReader):
    """SUCCESS or NOT SUCCESS anywhere in the reply, case-sensitive, as WebVoyager's code reads it.

    Source: MinorJerry/WebVoyager `evaluation/auto_eval.py`: a reply with neither has no label. A
    reply with `UNSUCCESSFUL` contains SUCCESS and so is a success.
    """

    form = PlainText(("SUCCESS", "NOT SUCCESS"), "{reason}\n{verdict}")
    _WORD = re.compile(r"\b((?:(?i:not)\W+)*)SUCCESS\b")
    # Small models repeat the question: "SUCCESS or NOT SUCCESS?" is no verdict.
    _OFFER = re.compile(r"\b(NOT\W+)?SUCCESS\W+or\W+(NOT\W+)?SUCCESS\b", re.IGNORECASE)

    def official(self, text: str) -> bool | None:
        if "NOT SUCCESS" in text:
            return False
        return True if "SUCCESS" in text else None

    def verdict(self, reply: Reply, how: Mapping[str, Any]) -> Reading:
        given = self._OFFER.sub(lambda offer: " " * len(offer[0]), reply.text)
        found = list(self._WORD.finditer(given))
        if not found:
            raise UnparsableError(f"no SUCCESS or NOT SUCCESS in the reply: {excerpt(reply.text)}")
        negated = len(re.findall(r"\w+", found[-1][1]))
        if negated > 1:
            raise UnparsableError(f"the verdict is negated twice: {excerpt(found[-1][0])}")
        return Reading(not negated, reply.text[: found[-1].start()].strip() or reply.text)


class _TagReader(VerdictReader):
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
        start, end = text.find("<success>"), text.find("</success>")
        inside = text[start + len("<success>") : end] if start >= 0 and end >= 0 else ""
        if not inside:
            return False
        word = re.sub(r"[\"']", "", inside.strip().lower())
        if word in self._OFFICIAL:
            return self._OFFICIAL[word]
        return True if word.startswith("1.") or "complete failure" in word else None

    def verdict(self, reply: Reply, how: Mapping[str, Any]) -> Reading:
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


class _RewardReader(VerdictReader):
    """A reward from 1 to 5; 4 and 5 are successes, as AgentRewardBench's port of NNetNav reads it.

    All text after the first `Reward:` must be digits, else the port stops in a debugger, as it does
    without `Reward:`; there is no label then. Source: McGill-NLP/agent-reward-bench
    `parse_nnetnav_judgment` in `agent_reward_bench/judge/__init__.py`, after MurtyShikhar/NNetnav
    `evaluation/run_lm_reward.py`.
    """

    _REWARD = re.compile(r"reward[ \t*_\"']*:[ \t*_\"'\[(]*([1-5])(?![\d.])", re.IGNORECASE)

    def official(self, text: str) -> bool | None:
        digits = text.partition("Reward:")[2].strip()
        return int(digits) >= _LEAST_REWARD if digits.isdigit() and digits.isascii() else None

    def verdict(self, reply: Reply, how: Mapping[str, Any]) -> Reading:
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
class _Judged:
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


class _JudgementReader(VerdictReader):
    """One JSON object with a boolean verdict, as browser-use's code validates it.

    A reply that is not such an object has no label; texts such as "true" are converted. Source:
    browser-use/browser-use `JudgementResult` in `browser_use/agent/views.py`, and
    `browser_use/agent/service.py`, where a failed judgement is None.
    """

    form: RecordFormat[_Judged] = RecordFormat(
        _Judged,
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

    def verdict(self, reply: Reply, how: Mapping[str, Any]) -> Reading:
        record = self.form.read(reply)
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


class _OutcomeReader(VerdictReader):
    """One JSON object with a boolean `output_success`, as the Universal Verifier's code reads it.

    A reply without it has no label, after five tries there. Source: microsoft/fara
    `webeval/src/webeval/rubric_agent/mm_rubric_agent.py`.
    """

    form: RecordFormat[Outcome] = RecordFormat(
        Outcome,
        '{"primary_intent": "<what the user wanted>", "reasoning": "<why>", "output_success": '
        "true or false}",
    )

    def official(self, text: str) -> bool | None:
        value = _object(text).get("output_success")
        return value if isinstance(value, bool) else None

    def verdict(self, reply: Reply, how: Mapping[str, Any]) -> Reading:
        record = self.form.read(reply)
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
    """A frame's grades, one for each column, and the description of what it shows.

    Without a grade (the reply had none), there is none to compare; `error` says why, if prill's own
    reader refused the reply.
    """

    scores: tuple[int, ...] = ()
    description: str = ""
    error: str = ""

    @property
    def score(self) -> int:
        """The first grade; 0 if there is none."""
        return self.scores[0] if self.scores else 0


def read_grade(text: str) -> Grade:
    """Returns WebJudge's grade of a frame.

    It is the first digit from 1 to 5 between the first and second `Score`, case-sensitive; so an
    earlier word such as `Scoreboard` counts. The description follows the last `**Reasoning**:`, up
    to a blank line. Source: microsoft/fara `…/om2w/impl/src/methods/webjudge_online_mind2web.py`.
    """
    parts = text.split("Score")
    found = re.search(r"[1-5]", parts[1]) if len(parts) > 1 else None
    description = text.split("**Reasoning**:")[-1].strip().lstrip("\n").split("\n\n")[0]
    return Grade((int(found[0]),) if found else (), description.replace("\n", " "))


# The Universal Verifier's computations: the frames relevant to each criterion, and the points

# microsoft/fara `webeval/src/webeval/rubric_agent/mm_rubric_agent.py`, steps 3 and "Final".
_TOP = 5
_HIGH, _LOW, _GAP = 6, 5, 2


def conditional_criteria(results: Mapping[str, Any]) -> list[int]:
    """Returns the numbers, from 1, of the rubric's criteria with a condition."""
    rubric: Rubric = results["rubric"]
    return [i for i, item in enumerate(rubric.items, 1) if item.condition]


def select_relevant(
    relevance: Sequence[FrameRelevance], rubric: Rubric
) -> dict[int, tuple[int, ...]]:
    """Selects the frames that are analysed for each criterion: the criteria's numbers, from 1, by
    frame.

    They are the five most relevant ones; of equally relevant frames, the later ones. If one has a
    relevance of 6 or more, those below 5 and more than 2 below the weakest such frame are dropped.
    A frame's relevance to a criterion is 0 if none is given.
    """
    selected: dict[int, list[int]] = {}
    for number in range(1, len(rubric.items) + 1):
        scores = [
            max((one.score for one in frame.scores if one.criterion == number), default=0)
            for frame in relevance
        ]
        best = sorted(range(len(scores)), key=lambda i: (-scores[i], -i))[:_TOP]
        if high := [scores[i] for i in best if scores[i] >= _HIGH]:
            best = [i for i in best if not (scores[i] < _LOW and scores[i] < min(high) - _GAP)]
        for i in best:
            selected.setdefault(i, []).append(number)
    return {i: tuple(numbers) for i, numbers in selected.items()}


def complete_scores(result: Scores, results: Mapping[str, Any]) -> Scores:
    """Returns the points of all criteria, completed and ordered by the rubric.

    Points are bounded by 0 and the criterion's maximum. A criterion without points keeps those of
    the stage `first`, or 0. Decided rival conditions take precedence.
    """
    rubric: Rubric = results["rubric"]
    earlier = results.get("first", Scores(()))
    conditions: Conditions = results.get("conditions", Conditions(()))
    found = {item.criterion: item for item in (*earlier.items, *result.items)}
    decided = {one.criterion: one.condition_met for one in conditions.conditions}
    items = []
    for number, item in enumerate(rubric.items, 1):
        score = found.get(number, ItemScore(number, True, 0, "no points were given"))
        points = min(float(item.max_points), max(0.0, score.earned_points))
        met = decided.get(number, score.condition_met or not item.condition)
        items.append(ItemScore(number, met, points, score.justification))
    return Scores(tuple(items))


def compute_points(results: Mapping[str, Any]) -> tuple[tuple[Criterion, ...], float | None]:
    """Returns the criteria and the share of points earned, in [0, 1]; None if no criterion applies.

    Criteria whose condition is not met are in neither sum; side effects add points that were not
    earned.
    """
    rubric: Rubric = results["rubric"]
    scores: Scores = results["scores"]
    criteria, earned, maximum = [], 0.0, 0.0
    for item, score in zip(rubric.items, scores.items, strict=True):
        if not score.condition_met:
            continue
        earned, maximum = earned + score.earned_points, maximum + item.max_points
        criteria.append(
            Criterion(
                text=item.criterion,
                weight=float(item.max_points),
                met="met" if score.earned_points >= item.max_points else "not_met",
                reason=f"{score.earned_points:g} of {item.max_points} points: "
                f"{score.justification}",
            )
        )
    maximum += sum(effect.max_points for effect in results["effects"].side_effects)
    return tuple(criteria), earned / maximum if maximum else None


class _StepLabelReader(LastReader):
    """One of four labels of an action, with the probability of having reached the goal.

    The reward of a step is 1 if it reached the goal, `towards` for progress, else `away`. A run is
    a success if a step reached the goal. A reply without a label counts as not_sure and is flagged;
    if no reply has one, the verdict is unscored (in arXiv 2404.06474 it is a failure).
    """

    reads_probabilities = True

    def form_of(self, how: Mapping[str, Any]) -> ReplyFormat | WordFormat:
        return STEP_WORD if how.get("form") == "word" else STEP

    def make_form(self, scene: Scene) -> Form:
        form = self.form_of(scene.how)
        return replace(form, tagged=scene.page.plain) if form is STEP else form

    def texts(self, how: Mapping[str, Any]) -> list[str]:
        return super().texts(how)[self.form_of(how) is STEP_WORD :]

    def read(
        self, reply: Reply, scene: Scene, subject: Mapping[str, Any]
    ) -> tuple[StepVerdict, float]:
        word = reply.fields[STEP.verdict]
        label, probability = LABELS[word], None
        if reply.tokens:
            probability = _share(reply.tokens, self.form_of(scene.how), _REACHED, word)
        if probability is None:
            probability = float(word == _REACHED)
        towards, away = scene.how["towards"], scene.how["away"]
        reward = {"reached": 1.0, "towards": towards}.get(label, away)
        reason = reply.fields.get(STEP.text, "")
        return StepVerdict(subject["before"], label, reward, reason), probability

    def missing(
        self, error: UnparsableError, scene: Scene, subject: Mapping[str, Any]
    ) -> tuple[StepVerdict, float]:
        away = scene.how["away"]
        return StepVerdict(subject["before"], "not_sure", away, str(error), flagged=True), 0.0

    def conclude(self, scene: Scene, results: Sequence[tuple[StepVerdict, float]]) -> Judgement:
        steps = tuple(step for step, _ in results)
        if not scene.page.plain and all(step.flagged for step in steps):
            raise UnparsableError(f"no reply contains a label; the first: {steps[0].reason}")
        reached = any(step.label == "reached" for step in steps)
        score = round(min(1.0, max(probability for _, probability in results)), 6)
        rewards = tuple(step.reward for step in steps)
        return Judgement(reached, score, _summary(steps), steps, rewards)


def _summary(steps: Sequence[StepVerdict]) -> str:
    first = next((step for step in steps if step.label == "reached"), None)
    if first is not None:
        return f"action {first.index + 1} reached the goal: {first.reason}"
    counts = Counter(
        "without a label" if step.flagged else step.label.replace("_", " ") for step in steps
    )
    return "no action reached the goal: " + ", ".join(
        f"{count} {label}" for label, count in counts.most_common()
    )


class _ProgressReader(LastReader):
    """How far a criterion is in a state, in one word, after Web-Shepherd (arXiv 2505.15277).

    The value is P(yes) + P(in progress) / 2 from the token probabilities; without probabilities,
    the word counts 1, 0.5 or 0. The progress of a state is the weighted mean of the values. A
    step's reward is the progress after it minus the progress before it, in [-1, 1]. A run is a
    success if, in the last state, every criterion is more likely done than not. The score is half
    of the last progress, plus 0.5 for a success.
    """

    reads_probabilities = True
    form = ITEM

    def tokens(self, scene: Scene, most: int) -> int:
        return _WORD_TOKENS

    def requires(self, scene: Scene) -> None:
        if not scene.texts[-1]:
            raise NoEvidenceError("the last state cannot be read, so its progress is unknown")

    def read(self, reply: Reply, scene: Scene, subject: Mapping[str, Any]) -> tuple[int, float]:
        return subject["state"], item_value(reply)

    def conclude(self, scene: Scene, results: Sequence[tuple[int, float]]) -> Judgement:
        """Returns the progress of the last state, and the steps by their changes of it.

        A state that was not recorded has the progress of the state before, and its step is flagged.
        """
        criteria, of_state = scene.rubric.criteria, dict[int, list[float]]()
        for i, value in results:
            of_state.setdefault(i, []).append(value)
        weights, progress = [item.weight for item in criteria], list[float]()
        for i in range(len(scene.texts)):
            values = of_state.get(i)
            before = progress[-1] if progress else 0.0
            progress.append(before if values is None else fmean(values, weights))
        steps = tuple(_progress_step(i, of_state, progress) for i in range(len(scene.run.steps)))
        last = len(progress) - 1
        done = [value > _HALF for value in of_state[last]]
        found = tuple(
            Criterion(
                text=item.text,
                weight=item.weight,
                met="met" if met else "not_met",
                step=last if met else None,
                reason=f"{value:.2f} done in the last state",
            )
            for item, met, value in zip(criteria, done, of_state[last], strict=True)
        )
        unmet = "; ".join(criterion.text for criterion in found if criterion.met != "met")
        return Judgement(
            all(done),
            round(progress[last] / 2 + all(done) / 2, 6),
            f"{sum(done)} of {len(done)} items done" + (f"; open: {unmet}" if unmet else ""),
            steps,
            tuple(step.reward for step in steps),
            Findings(criteria=found, process=round(progress[last], 6)),
        )


def _progress_step(
    i: int, of_state: Mapping[int, Sequence[float]], progress: Sequence[float]
) -> StepVerdict:
    # if no state after the last action was recorded, its effect is unknown
    known = i in of_state and i + 1 in of_state
    reward = round(progress[i + 1] - progress[i], 6) if i + 1 < len(progress) else 0.0
    done = all(value > _HALF for value in of_state.get(i + 1, []))
    label: Label = "away" if reward < 0 else "reached" if done else "towards"
    return StepVerdict(
        i,
        "not_sure" if not known or abs(reward) <= _TOLERANCE else label,
        reward,
        f"progress {progress[i]:.2f} to {progress[i + 1]:.2f}"
        if known
        else "a state around it was not recorded",
        flagged=not known,
    )


def item_value(reply: Reply) -> float:
    """Returns P(yes) + P(in progress) / 2 by log-probabilities, else 1, 0.5 or 0 by the word."""
    word = reply.fields[ITEM.verdict]
    shares = [
        word_probability(reply.tokens, ITEM.choices, choice, word) if reply.tokens else None
        for choice in (YES, PART)
    ]
    if shares[0] is None or shares[1] is None:
        return {YES: 1.0, PART: _HALF}.get(word, 0.0)
    return min(1.0, shares[0] + _HALF * shares[1])


class _AnswersReader(LastReader):
    """Typed answers to the judge's questions, each with the state that shows it.

    The first yes/no question determines the outcome. Without one, a run is a success if all
    questions have an answer.
    """

    reads_probabilities = True

    def form_of(self, how: Mapping[str, Any]) -> AnswersFormat:
        return AnswersFormat(tuple(how["asked"]))

    def read(self, reply: Reply, scene: Scene, subject: Mapping[str, Any]) -> Judgement:
        """Returns the judgement. Raises NoEvidenceError if the deciding question has no answer."""
        shown = {state for frame in scene.shown for state in frame.states}
        questions = scene.questions
        answers = read_answers(questions, reply.fields["answers"], shown)
        decisive = next((i for i, q in enumerate(questions) if q.answer == YES_NO), None)
        counted = answers if decisive is None else (answers[decisive],)
        if undecided := [answer for answer in counted if answer.value is None]:
            raise NoEvidenceError(
                f"the evidence does not answer {undecided[0].question!r}: {undecided[0].reason}"
            )
        success = decisive is None or answers[decisive].value is True
        score = float(success)
        if decisive is not None and len(answers) == 1 and reply.tokens:
            word = "yes" if success else "no"
            score = choice_probability(reply.tokens, "answer", ("yes", "no"), "yes", word) or score
        reason = "; ".join(f"{a.question} {format_value(a.value)}: {a.reason}" for a in answers)
        return Judgement(success, round(score, 6), reason, findings=Findings(answers=answers))


class _GivenReader(LastReader):
    """The likelihood of the goal, which the model is given as its reply.

    The score is the geometric mean of the goal's three lowest token probabilities; a run is a
    success from `threshold` on. The idea is that of hindsight relabelling and instruction
    back-translation (arXiv 2308.06259), used here to score.
    """

    reads_probabilities = True

    def make_form(self, scene: Scene) -> Form:
        return GivenReply(scene.run.task.goal)

    def texts(self, how: Mapping[str, Any]) -> list[str]:
        return []

    def tokens(self, scene: Scene, most: int) -> int:
        return len(scene.run.task.goal.encode()) + 1

    def requires(self, scene: Scene) -> None:
        if not scene.run.task.goal.strip():
            raise NoEvidenceError("the request is empty")

    def read(self, reply: Reply, scene: Scene, subject: Mapping[str, Any]) -> Judgement:
        if not reply.tokens:
            raise UnparsableError("the model returned no log-probabilities")
        score = score_tokens(reply.tokens)
        success = score >= scene.how["threshold"]
        rewards = compute_rewards(success, len(scene.run.steps)) or None
        return Judgement(success, score, _least_likely(reply.tokens), rewards=rewards)


def score_tokens(tokens: Sequence[Token]) -> float:
    """Returns the geometric mean of the three lowest probabilities, in [0, 1]."""
    lowest = sorted(token.logprob for token in tokens)[:_LOWEST]
    return round(exp(fsum(lowest) / len(lowest)), 6)


def _least_likely(tokens: Sequence[Token]) -> str:
    least = min(range(len(tokens)), key=lambda i: tokens[i].logprob)
    before = "".join(token.text for token in tokens[:least])[-_SHOWN // 2 :]
    after = "".join(token.text for token in tokens[least + 1 :])[: _SHOWN // 2]
    token = tokens[least]
    return (
        f"least likely in the request: {token.text.strip()!r} (probability "
        f"{exp(token.logprob):.2g}) in {f'{before}{token.text}{after}'.strip()!r}"
    )


class _AssessmentReader(LastReader):
    """A finding on every criterion, with the state that shows it (`criteria.make_judgement`)."""

    form = ASSESSMENT

    def texts(self, how: Mapping[str, Any]) -> list[str]:
        return [ASSESSMENT.shape]

    def read(self, reply: Reply, scene: Scene, subject: Mapping[str, Any]) -> Judgement:
        """Returns the judgement. Raises UnparsableError, NoEvidenceError."""
        shown = {state for frame in scene.shown for state in frame.states}
        return make_judgement(
            scene.rubric, ASSESSMENT.read(reply), shown, scene.how.get("threshold", 1.0)
        )

    def conclude(self, scene: Scene, results: Sequence[Judgement]) -> Judgement:
        [judgement] = results
        grades: Sequence[Grade] = scene.results.get("grades", ())
        unread = _unread(grades)
        notes = [f"{unread} of {len(grades)} frames could not be rated"] if unread else []
        notes += [scene.remark] if scene.remark else []
        found = _graded(scene.frames, grades)
        findings = replace(judgement.findings or Findings(), frames=found)
        reason = judgement.reason + (f" [{'; '.join(notes)}]" if notes else "")
        return replace(judgement, reason=reason, findings=findings)


class _RatingReader(StageReader):
    """A description of a frame, and its relevance from 1 to 5 to each criterion.

    A frame whose rating cannot be read is still shown; if there are more of them than would be
    shown, the verdict is unscored.
    """

    form = RELEVANCE
    typical = Grade((5,) * 5, "x" * 500)

    def texts(self, how: Mapping[str, Any]) -> list[str]:
        return [RELEVANCE.shape]

    def read(self, reply: Reply, scene: Scene, subject: Mapping[str, Any]) -> Grade:
        """Returns the rating. Raises UnparsableError without a score for every criterion."""
        found, count = RELEVANCE.read(reply), len(scene.rubric.criteria)
        if len(found.scores) != count:
            raise UnparsableError(f"{len(found.scores)} scores for {count} criteria")
        return Grade(found.scores, found.description)

    def missing(self, error: UnparsableError, scene: Scene, subject: Mapping[str, Any]) -> Grade:
        return Grade(error=str(error))

    def settle(self, results: Sequence[Grade], scene: Scene) -> Sequence[Grade]:
        """Returns the ratings. Raises UnparsableError if too many could not be read."""
        failures = [grade.error for grade in results if grade.error]
        if len(failures) > scene.how.get("top_k", len(results)):
            raise UnparsableError(
                f"the ratings of {len(failures)} of {len(results)} frames cannot be read; the "
                f"last: {failures[-1]}"
            )
        return results


class _CriteriaReader(StageReader):
    """The criteria of a goal, unless the option `rubrics` has them."""

    reads_criteria = True

    form = RUBRIC
    typical = GoalRubric(tuple(RubricCriterion(str(i).ljust(100, "x")) for i in range(5)))

    def texts(self, how: Mapping[str, Any]) -> list[str]:
        return [RUBRIC.shape]

    def read(self, reply: Reply, scene: Scene, subject: Mapping[str, Any]) -> GoalRubric:
        return RUBRIC.read(reply)


class _SimpleReader(StageReader, Generic[_T]):
    """Reads a reply by itself; `absent` is the result of an optional call that cannot be read."""

    def __init__(
        self, form: Form, read: Callable[[Reply], _T], typical: _T, absent: _T | None = None
    ) -> None:
        self.form, self._read, self.typical, self._absent = form, read, typical, absent

    def read(self, reply: Reply, scene: Scene, subject: Mapping[str, Any]) -> _T:
        return self._read(reply)

    def missing(
        self, error: UnparsableError, scene: Scene, subject: Mapping[str, Any]
    ) -> _T | None:
        return self._absent


class _ScoresReader(_SimpleReader["Scores"]):
    """The points of all criteria, completed and ordered by the rubric."""

    def settle(self, results: Sequence[Scores], scene: Scene) -> Sequence[Scores]:
        return [complete_scores(one, scene.results) for one in results]


def _record(
    type_: type[_T], shape: str, typical: _T, absent: _T | None = None
) -> _SimpleReader[_T]:
    form = RecordFormat(type_, shape)
    return _SimpleReader(form, form.read, typical, absent)


_LONG = "x" * 497
_SIX = tuple(RubricItem("x" * 60, "x" * 200, 5, None) for _ in range(6))
_NOTES = Notes(tuple(ItemNote(i + 1, "x" * 300) for i in range(6)))
_SCORED = Scores(tuple(ItemScore(i + 1, True, 5, "x" * 200) for i in range(6)))
_POINTS = RecordFormat(
    Scores,
    '{"items": [{"criterion": <its number>, "condition_met": <true if it has no condition>, '
    '"earned_points": <points>, "justification": "<why>"}, …]}',
)
_RUBRIC = (
    '{"items": [{"criterion": "<name>", "description": "<what earns points>", "max_points": '
    '<number>, "condition": <null, or when it applies>}, …]}'
)
READERS: Mapping[str, StageReader] = {
    # of the last stage
    "verdict": _OutcomeJudgement(),
    "status": _StatusReader(),
    "paper_status": _PaperStatusReader(),
    "words": _WordReader(),
    "tags": _TagReader(),
    "reward": _RewardReader(),
    "judgement": _JudgementReader(),
    "outcome": _OutcomeReader(),
    "label": _StepLabelReader(),
    "progress": _ProgressReader(),
    "answers": _AnswersReader(),
    "given": _GivenReader(),
    "assessment": _AssessmentReader(),
    # of stages before it
    "criteria": _CriteriaReader(),
    "ratings": _RatingReader(),
    "text": _SimpleReader(PLAIN, lambda reply: reply.text.strip(), _LONG, ""),
    "key_points": _SimpleReader(PLAIN, lambda reply: read_key_points(reply.text), _LONG),
    "grade": _SimpleReader(
        PLAIN, lambda reply: read_grade(reply.text), Grade((5,), _LONG), Grade()
    ),
    "rubric": _record(Rubric, _RUBRIC, Rubric(_SIX)),
    "scores": _ScoresReader(_POINTS, _POINTS.read, _SCORED, Scores(())),
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
