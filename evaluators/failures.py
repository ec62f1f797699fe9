"""Finds the cause of a failed run, as a code, from a judge's findings or by rules.

The rules read the recording and call no model. If no rule applies, there is no cause. They describe
what the recording shows, not which step was the first mistake.
"""

from __future__ import annotations

import math
import random
import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from prill.actions.early_stop import EarlyStop
from prill.errors import UsageError
from prill.evaluators.claim_check import affirmed, unseen_claims
from prill.evaluators.claims import parse_stance
from prill.evaluators.evidence import endings, list_goals
from prill.types import Findings, Observation, Trajectory, Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RULES: dict[str, str] = {
    "captcha": "a captcha at the end",
    "login_wall": "a login form at the end, left empty, in a task that asks for no login",
    "error_page": "an error page at the end",
    "loop": "the same action repeated again and again",
    "wrong_site": "an end on a site other than the task's",
    "no_change": "no change of the page after the last actions",
    "limit_reached": "the limit of steps or time was reached",
    "stopped_early": "the agent gave up",
}
FINDINGS: dict[str, str] = {
    "not_executable": "the task is not possible",
    "missed_requirement": "a requested thing was not done",
    "not_shown": "no state shows that a requested thing was done",
    "side_effect": "an unrequested change was made",
    "wrong_claim": "the answer contradicts the pages",
    "wrong_action": "an action led away from the goal",
    "not_reached": "no action reached the goal",
    "other": "only the judge's reason",
}
Source = Literal["judge", "rule"]
MAX_REASONS = 2000  # that are clustered at once
_BLOCK = 250  # words whose weights are held at a time
_ROWS = 100  # of similarities that are copied at a time
_STUCK = 3  # actions without effect at the end
_TEXT = 100_000  # characters of a state that are read
_CAPTCHA = re.compile(
    r"captcha|are you (?:a )?(?:human|robot)|not a robot|unusual traffic|"
    r"verify (?:that )?you are human",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"\b(?:log|sign) ?in\b", re.IGNORECASE)
_PASSWORD = re.compile(r"\bpassword\b", re.IGNORECASE)
# A goal that asks for a login: the form is then the task and not a wall before it.
_LOGIN_TASK = re.compile(
    r"\b(?:log|sign)(?:ging|ing)?[ -]?(?:in|into|on)\b|\bauthenticate\b",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"\b(?:40[0134]|410|429|50[0-4]|52\d)\b[^\n]{0,40}\b(?:error|forbidden|not found|gateway|"
    r"unavailable|unauthorized|too many)|\berror(?: code)?[ :]{1,2}(?:40[0134]|50[0-4]|52\d)\b|"
    r"this site can['’]t be reached|you have been blocked|unexpected error|access denied|"
    r"internal server error|\berr_[a-z_]{4,}",
    re.IGNORECASE,
)
# The rules that read a state, each with words of which every match has one: looking for them takes
# a tenth of the time.
_SHOWN = (
    ("captcha", _CAPTCHA, ("captcha", "human", "robot", "unusual traffic")),
    ("login_wall", _LOGIN, ("login", "log in", "signin", "sign in")),
    (
        "error_page",
        _ERROR,
        ("error", "forbidden", "not found", "gateway", "unavailable", "unauthorized", "too many",
         "this site can", "you have been blocked", "access denied", "err_"),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a failed run.

    `code` is a key of `RULES`, or of `FINDINGS` if a judge found it. `source` is a judge's findings
    or a rule. `step` is the index of the state that shows it, from 0; None if no single state does.
    `detail` is the evidence, quoted from the page or the judge.
    """

    code: str
    source: Source
    step: int | None = None
    detail: str = ""

    @property
    def words(self) -> str:
        """Returns the description of the code."""
        return (FINDINGS if self.source == "judge" else RULES)[self.code]


def find_cause(trajectory: Trajectory, verdict: Verdict | None = None) -> Cause | None:
    """Finds the cause of a failed run.

    Args:
        trajectory: The run, known to have failed.
        verdict: A judge's verdict on it. None: only the rules are used.

    Returns:
        The cause from the verdict's findings, step labels or reason; otherwise the first rule of
        `RULES` that applies. None: no rule applies.

    Raises:
        UsageError: The verdict calls the run a success, or is unscored.
    """
    judged = None if verdict is None else judged_cause(verdict)
    if judged is not None and judged.code != "other":
        return judged
    return rule_cause(trajectory) or judged


def judged_cause(verdict: Verdict) -> Cause | None:
    """Finds the cause in a verdict's findings, step labels or reason; `other` if only in a reason.
    Raises UsageError if the verdict calls the run a success, or is unscored.
    """
    if verdict.success is not False:
        raise UsageError(f"the verdict on {verdict.id} is not a failure, so it has no cause")
    found = verdict.findings or Findings()
    if found.not_executable is not None:
        return Cause("not_executable", "judge", None, found.not_executable)
    for met, code in (("not_met", "missed_requirement"), ("insufficient_evidence", "not_shown")):
        for criterion in found.criteria:
            if criterion.met == met:
                return Cause(code, "judge", criterion.step, criterion.text)
    for effect in found.side_effects:
        return Cause("side_effect", "judge", None, effect)
    for claim in unseen_claims(found.claims or ()):
        return Cause("wrong_claim", "judge", claim.step, claim.text)
    if verdict.steps:
        away = next((step for step in verdict.steps if step.label == "away"), None)
        return (
            Cause("not_reached", "judge", None, verdict.reason)
            if away is None
            else Cause("wrong_action", "judge", away.index, away.reason)
        )
    return Cause("other", "judge", None, verdict.reason) if verdict.reason else None


def rule_cause(trajectory: Trajectory) -> Cause | None:
    """Returns the first rule of `RULES` that applies to a run that failed; None: no rule does."""
    states, steps = trajectory.observations, trajectory.steps
    texts = {index: _read(states[index]) for index in sorted(endings(trajectory), reverse=True)}
    folded = {index: text.casefold() for index, text in texts.items()}
    for code, pattern, words in _SHOWN:
        for index, text in texts.items():
            if not any(word in folded[index] for word in words):
                continue
            if (match := pattern.search(text)) is None:
                continue
            if code == "login_wall" and not _asks_for_login(trajectory, text):
                continue
            return Cause(code, "rule", index, match[0])
    stop = EarlyStop()
    for i in range(1, len(steps) + 1):
        if (why := stop(steps[:i])) is not None:
            return Cause("loop", "rule", i - 1, why)
    if (site := _wrong_site(trajectory)) is not None:
        return Cause("wrong_site", "rule", len(states) - 1, site)
    if (unchanged := _unchanged(states)) is not None:
        return Cause("no_change", "rule", unchanged)
    if trajectory.metadata.get("truncated") is True:
        return Cause("limit_reached", "rule", len(states) - 1 if states else None)
    if trajectory.answer is not None and parse_stance(trajectory.answer)[0] == "admission":
        return Cause("stopped_early", "rule", None, trajectory.answer)
    return None


def _read(state: Observation) -> str:
    caption = "\n".join(affirmed(state.caption[:_TEXT])) if state.caption else ""
    return f"{(state.text or '')[:_TEXT]}\n{caption}"


def _asks_for_login(trajectory: Trajectory, text: str) -> bool:
    """Returns whether a page is a login form that was not filled in and is not the task itself."""
    if any(map(_LOGIN_TASK.search, list_goals(trajectory.task))):
        return False
    typed = any(
        step.action.kind == "type" and _PASSWORD.search(step.action.target or "")
        for step in trajectory.steps
    )
    return _PASSWORD.search(text) is not None and not typed


def _wrong_site(trajectory: Trajectory) -> str | None:
    """Returns the final host if the task has a host and the final one is outside its domain."""
    start, last = (
        _host(url)
        for url in (
            trajectory.task.start_url,
            trajectory.observations[-1].url if trajectory.observations else None,
        )
    )
    if not start or not last or _domain(start) == _domain(last):
        return None
    return last


def _host(url: str | None) -> str:
    try:
        return urlsplit(url or "").hostname or ""
    except ValueError:
        return ""


def _domain(host: str) -> str:
    return host if host.replace(".", "").isdigit() else ".".join(host.split(".")[-2:])


def _unchanged(states: Sequence[Observation]) -> int | None:
    """Returns the state after which the last three actions changed nothing; None if they did."""
    if len(states) <= _STUCK:
        return None
    last = states[-1 - _STUCK :]
    seen = {(state.url, state.text, state.screenshot) for state in last}
    known = all(state.text or state.screenshot for state in last)
    return len(states) - 1 - _STUCK if known and len(seen) == 1 else None


@dataclass(frozen=True, slots=True)
class FailureCluster:
    """A cluster of failures with similar reasons.

    Attributes:
        medoid: The id of the failure whose reason is nearest to all others.
        reason: The reason of the medoid.
        ids: The ids of all failures in the cluster, in input order.
        stability: Mean Jaccard index with the most similar cluster of bootstrap resamples, in [0,
            1]; below 0.6 a cluster is not meaningful (Hennig 2007, doi:10.1016/j.csda.2006.11.025).
    """

    medoid: str
    reason: str
    ids: tuple[str, ...]
    stability: float


def cluster_failures(
    reasons: Mapping[str, str], *, clusters: int | None = None, draws: int = 20, seed: int = 0
) -> tuple[FailureCluster, ...]:
    """Groups failures by the words of their reasons: TF-IDF, cosine, k-medoids.

    Args:
        reasons: The reason by trajectory id, at most 2,000.
        clusters: The number of clusters; there are fewer if fewer reasons differ. None: the square
            root of half the number of reasons, at most 12.
        draws: The number of bootstrap resamples for the stability.
        seed: The random seed of the resamples.

    Returns:
        The clusters, the largest first.

    Raises:
        UsageError: There are more than 2,000 reasons, or a number is too small.
    """
    ids = list(reasons)
    if len(ids) > MAX_REASONS:
        raise UsageError(
            f"{len(ids):,} reasons are too many; cluster at most 2,000, sampled at random"
        )
    if draws < 1 or (clusters is not None and clusters < 1):
        raise UsageError(f"clusters {clusters} and draws {draws}: expected at least 1")
    if not ids:
        return ()
    wanted = clusters or min(12, max(1, round(math.sqrt(len(ids) / 2))))
    similarities = _similarities([reasons[id] for id in ids])
    groups = _medoids(similarities, list(range(len(ids))), wanted)
    draw = random.Random(seed)
    overlaps: list[list[float]] = [[] for _ in groups]
    for _ in range(draws):
        drawn = sorted({draw.randrange(len(ids)) for _ in ids})
        again = [set(members) for members in _medoids(similarities, drawn, wanted).values()]
        for members, found in zip(groups.values(), overlaps, strict=True):
            shared = set(members) & set(drawn)
            if shared:
                found.append(max(len(shared & other) / len(shared | other) for other in again))
    made = [
        FailureCluster(
            ids[medoid],
            reasons[ids[medoid]],
            tuple(ids[i] for i in members),
            sum(found) / len(found) if found else 0.0,
        )
        for (medoid, members), found in zip(groups.items(), overlaps, strict=True)
    ]
    return tuple(sorted(made, key=lambda cluster: -len(cluster.ids)))


def _similarities(texts: Sequence[str]) -> NDArray[np.float32]:
    """Returns the matrix of cosine similarities between the texts' TF-IDF vectors."""
    import numpy as np

    counts = [Counter(re.findall(r"[^\W\d_]{3,}", text[:4000].casefold())) for text in texts]
    texts_with = Counter(word for count in counts for word in count)
    words = {word: i for i, word in enumerate(w for w, n in texts_with.most_common(5000))}
    rows, columns, weights = array("i"), array("i"), array("d")
    for row, count in enumerate(counts):
        for word, times in count.items():
            if word in words:
                rarity = math.log((1 + len(texts)) / (1 + texts_with[word])) + 1
                rows.append(row)
                columns.append(words[word])
                weights.append((1 + math.log(times)) * rarity)
    del counts
    at, column, weight = np.asarray(rows), np.asarray(columns), np.asarray(weights)
    norms = np.sqrt(np.bincount(at, weight**2, minlength=len(texts)))
    weight = weight / np.maximum(norms, 1e-12)[at]
    # Of 2,000 texts, the whole table would take 80 MB, and similarities as doubles 32 MB.
    similarities = np.zeros((len(texts), len(texts)), np.float32)
    for start in range(0, len(words), _BLOCK):
        inside = (column >= start) & (column < start + _BLOCK)
        table = np.zeros((len(texts), min(_BLOCK, len(words) - start)))
        table[at[inside], column[inside] - start] = weight[inside]
        for row in range(0, len(texts), _ROWS):
            similarities[row : row + _ROWS] += table[row : row + _ROWS] @ table.T
    return similarities


def _medoids(
    similarities: NDArray[np.float32], indices: Sequence[int], wanted: int
) -> dict[int, list[int]]:
    """Returns the members by medoid among the indices; the first medoids are the farthest apart."""
    import numpy as np

    is_all = list(indices) == list(range(len(similarities)))
    own = similarities if is_all else similarities[np.ix_(indices, indices)]
    medoids = [int(own.sum(axis=1).argmax())]
    while len(medoids) < min(wanted, len(indices)):
        farthest = own[:, medoids].max(axis=1)
        farthest[medoids] = np.inf
        if farthest.min() > 1 - 1e-6:  # all others say what a medoid says
            break
        medoids.append(int(farthest.argmin()))
    for _ in range(20):
        nearest = own[:, medoids].argmax(axis=1)
        nearest[medoids] = range(len(medoids))
        moved = []
        for k in range(len(medoids)):
            members = np.flatnonzero(nearest == k)
            sums = [
                own[np.ix_(members[start : start + _ROWS], members)].sum(axis=1)
                for start in range(0, len(members), _ROWS)
            ]
            moved.append(int(members[np.concatenate(sums).argmax()]))
        if moved == medoids:
            break
        medoids = moved
    return {
        indices[medoid]: [indices[int(i)] for i in np.flatnonzero(nearest == k)]
        for k, medoid in enumerate(medoids)
    }
