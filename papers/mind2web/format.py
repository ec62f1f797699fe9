"""Reads Mind2Web (arXiv 2306.06070) and MT-Mind2Web (ACL 2024), JSON files of tasks or of
conversations with tasks as turns, and Multimodal-Mind2Web, Parquet with one action per row.

A file is an array of records, or has one record per line. It is read record by record, so it may be
larger than memory. A turn becomes a trajectory of its gold actions. The observation of a step is a
`PageState`: the cleaned page, all candidates, and the earlier actions of this turn. Ranked
candidates come first, the best before the others; the rest follow in page order, so that the
position does not reveal the right ones. `action.target` holds the right nodes, in the order of the
record. It is empty where cleaning has removed them.

`raw_html` is skipped. If the right element of a step is not in `cleaned_html`, the page is shown
without it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import msgspec

from prill.datasets.reading.records import UNREADABLE
from prill.datasets.reading.safe_pickle import fields, load_pickle
from prill.datasets.reading.sources import Source
from prill.errors import InputError, MissingExtraError, UsageError
from prill.io.store import BadLine, open_lines
from prill.papers.mind2web import parquet
from prill.papers.mind2web.pages.conversations import without_pages
from prill.papers.mind2web.pages.scores import Scores, read_scores, sample_ids
from prill.papers.mind2web.pages.state import PageState
from prill.types import Action, Observation, Step, Task, Trajectory

_KINDS = {"CLICK": "click", "TYPE": "type", "SELECT": "select"}
_SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz", parquet.SUFFIX)
# Both names are in the footer at the end of a Parquet file.
_FOOTER = 1 << 20
_NODE = re.compile(r'backend_node_id="([^"]*)"')
_NUMBER = re.compile(r"(\d+)\D*$")
# The data set's own score file has about ten million candidates, each twice (score and rank), at
# about five opcodes and 25 bytes each.
_LARGEST_SCORES, _MAX_OPCODES = 2**30, 150_000_000


class _Operation(msgspec.Struct):
    op: str
    value: str = ""


class _Candidate(msgspec.Struct):
    # no white space: the text of a state lists the ids on one line
    backend_node_id: Annotated[str, msgspec.Meta(pattern=r"^\S+\Z")]
    rank: float | None = None


class _Act(msgspec.Struct):
    action_uid: str
    operation: _Operation
    cleaned_html: str
    pos_candidates: list[_Candidate] = []
    neg_candidates: list[_Candidate] = []


class _Turn(msgspec.Struct):
    annotation_id: str
    confirmed_task: str
    action_reprs: list[str]
    actions: list[_Act]
    # The index of each action in action_reprs, in ascending order. None: there is one entry for
    # each action.
    indexes: list[Annotated[int, msgspec.Meta(ge=0)]] | None = None
    website: str | None = None
    domain: str | None = None
    subdomain: str | None = None


def recognise(source: Source) -> bool:
    """Returns whether documents begin with a task's id and text or with a conversation's turns, or
    Parquet has Multimodal-Mind2Web's columns. Files may be too large to parse.
    """
    return source.has(_is_ours, "*.json", "*.json.gz", f"*{parquet.SUFFIX}")


def _is_ours(file: Source) -> bool:
    if file.path.suffix == parquet.SUFFIX:
        return file.head.startswith(b"PAR1") and all(
            name in _end(file.path) for name in (b"annotation_id", b"target_action_index")
        )
    return b'"annotation_id"' in file.head and any(
        key in file.head for key in (b'"confirmed_task"', b'"turns"')
    )


def _end(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _FOOTER))
            return file.read(_FOOTER)
    except OSError:
        return b""


def load(
    source: str | PathLike[str],
    scores: Annotated[
        str | PathLike[str] | Scores | None,
        msgspec.Meta(
            description="Score file (JSON or pickle) that orders the candidates of each step."
        ),
    ] = None,
) -> Iterator[Trajectory | BadLine]:
    """Yields every turn, conversation by conversation. A broken turn becomes a BadLine and is not
    an earlier turn of the others.

    `scores` orders the candidates: a score file in JSON, the data set's pickle, or the content of
    one. A BadLine at the end reports the steps without scores. Raises UsageError if no step has
    scores.
    """
    known, steps, ordered = _scores(scores), 0, 0
    for item in records(source):
        if isinstance(item, BadLine):
            yield item
            continue
        for turn in _turns(*item, known):
            if isinstance(turn, Trajectory):
                steps += len(turn.steps)
                ordered += sum(sample in known for sample in sample_ids(turn))
            yield turn
    if scores is None or ordered == steps:
        return
    name = "scores" if isinstance(scores, Mapping) else str(scores)
    if not ordered:
        raise UsageError(
            f"{name}: has none of the {steps} steps of {source}; was it made for other data?",
            parameters=("scores",),
        )
    lacks = (
        f"lacks {steps - ordered} of the {steps} steps; their candidates are not in the order "
        "of scores"
    )
    yield BadLine(name, name, lacks, b"")


def _files(source: str | PathLike[str]) -> list[Path]:
    root = Path(source)
    if not root.exists():
        raise UsageError(f"{source}: no such file or folder")
    if root.is_file():
        return [root]
    paths = [path for path in root.rglob("*") if path.name.endswith(_SUFFIXES) and path.is_file()]
    if not paths:
        raise UsageError(
            f"{source}: contains no Mind2Web files, such as train/train_0.json, or "
            "data/train-00000-of-00027.parquet of Multimodal-Mind2Web"
        )
    return sorted(paths, key=_place)


def _place(path: Path) -> tuple[str, int, str]:
    """Returns a sort key that orders files by the number at the end of their names: `train_10.json`
    after `train_9.json`.
    """
    stem = path.name.partition(".")[0]
    number = None if path.suffix == parquet.SUFFIX else _NUMBER.search(stem)
    return str(path.parent), int(number[1]) if number else -1, path.name


def _scores(scores: str | PathLike[str] | Scores | None) -> Scores:
    if scores is None or isinstance(scores, Mapping):
        return scores or {}
    try:
        with open_lines(scores) as file:
            first = file.read(1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{scores}: cannot be read: {error}") from None
    if first in (b"{", b" ", b"\n", b"\t", b"\r"):
        return read_scores(scores)
    pickled = load_pickle(scores, largest=_LARGEST_SCORES, most_steps=_MAX_OPCODES)
    try:
        # The rankers' code fills a subclass of dict, `defaultdict(dict)`.
        by_sample = fields(fields(pickled).get("scores"))
        if not by_sample:
            raise msgspec.ValidationError("no scores - at `$.scores`")
        return msgspec.convert(
            {sample: fields(of_sample) for sample, of_sample in by_sample.items()},
            dict[str, dict[str, float]],
        )
    except msgspec.ValidationError as error:
        raise InputError(f"{scores}: not a Mind2Web score file: {error}") from None


def records(source: str | PathLike[str]) -> Iterator[tuple[str, Any] | BadLine]:
    """Yields every record unchanged with its position. A damaged file yields a BadLine after its
    readable records.
    """
    files = _files(source)
    tables = [path for path in files if path.suffix == parquet.SUFFIX]
    for path in files:
        if path not in tables:
            yield from _records(path)
    if tables:
        yield from parquet.read_tasks(tables)


def _records(path: Path) -> Iterator[tuple[str, Any] | BadLine]:
    try:
        import ijson
    except ImportError:
        raise MissingExtraError("ijson", "papers") from None
    place = str(path)
    count = 0
    try:
        with open_lines(path) as file:
            array = _first_byte(path) == b"["
            for record in ijson.items(
                file, "item" if array else "", use_float=True, multiple_values=not array
            ):
                yield f"{path}[{count}]", record
                count += 1
    except (ijson.JSONError, OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        told = " ".join(str(error).split())[:300]
        yield BadLine(place, place, f"damaged after {count} records, which were read: {told}", b"")
        return
    if not count:
        yield BadLine(place, place, "holds no records", b"")


def _first_byte(path: Path) -> bytes:
    with open_lines(path) as file:
        return file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]


def _turns(place: str, record: Any, scores: Scores) -> Iterator[Trajectory | BadLine]:
    """Yields the turns of a conversation, or the single turn of a task."""
    if not isinstance(record, dict) or not isinstance(turns := record.get("turns", [record]), list):
        yield BadLine(
            place,
            place,
            "neither a task (annotation_id, confirmed_task, actions) nor a conversation (turns)",
            b"",
        )
        return
    single = "turns" not in record
    earlier: list[Trajectory] = []
    for number, raw in enumerate(turns):
        where = place if single else f"{place}.turns[{number}]"
        try:
            turn = _trajectory(msgspec.convert(raw, _Turn), record, number, tuple(earlier), scores)
        except (*UNREADABLE, InputError) as error:
            yield BadLine(where, where, str(error), b"")
            continue
        yield turn
        earlier.append(without_pages(turn))


def _trajectory(
    turn: _Turn,
    record: dict[str, Any],
    number: int,
    earlier: tuple[Trajectory, ...],
    scores: Scores,
) -> Trajectory:
    if not turn.actions:
        raise InputError("no actions - at `$.actions`")
    indexes = turn.indexes
    if indexes is None and len(turn.action_reprs) == len(turn.actions):
        indexes = list(range(len(turn.actions)))
    if indexes is None or indexes[-1] >= len(turn.action_reprs):
        raise InputError(
            f"{len(turn.action_reprs)} action_reprs for {len(turn.actions)} actions - at "
            "`$.action_reprs`"
        )
    steps = tuple(
        _step(turn, k, index, scores.get(f"{turn.annotation_id}_{turn.actions[k].action_uid}"))
        for k, index in enumerate(indexes)
    )
    about = {
        name: getattr(turn, name) or record.get(name) for name in ("website", "domain", "subdomain")
    }
    metadata = {
        "conversation": str(record.get("task_id") or turn.annotation_id),
        "turn": number,
        **{name: about[name] for name in ("domain", "subdomain") if about[name]},
        "uids": [act.action_uid for act in turn.actions],
        # Multimodal-Mind2Web omits some actions
        **({"of_actions": len(turn.action_reprs)} if len(turn.action_reprs) > len(steps) else {}),
    }
    goal, site = turn.confirmed_task, about["website"]
    task = Task(
        id=turn.annotation_id,
        goal=goal,
        platform="web",
        site=str(site) if site else None,
        earlier=earlier,
    )
    return Trajectory(
        id=turn.annotation_id, task=task, agent="gold", steps=steps, metadata=metadata
    )


def _step(turn: _Turn, k: int, index: int, scores: Mapping[str, float] | None) -> Step:
    act = turn.actions[k]
    if (kind := _KINDS.get(act.operation.op)) is None:
        raise InputError(
            f"unknown operation {act.operation.op!r}; expected one of {', '.join(_KINDS)} - at "
            f"`$.actions[{k}].operation.op`"
        )
    state = PageState(act.cleaned_html, _candidates(act, scores), tuple(turn.action_reprs[:index]))
    target = " ".join(candidate.backend_node_id for candidate in act.pos_candidates)
    action = Action(kind, turn.action_reprs[index], target, value=act.operation.value or None)
    return Step(Observation(text=state.text()), action)


def _candidates(act: _Act, scores: Mapping[str, float] | None) -> tuple[str, ...]:
    all_of = {
        candidate.backend_node_id: candidate.rank
        for candidate in (*act.pos_candidates, *act.neg_candidates)
    }
    ranks = {id: rank for id, rank in all_of.items() if rank is not None}
    if scores:
        ranks = {id: -scores[id] for id in all_of if id in scores}
    places: dict[str, int] = {}
    for node in _NODE.finditer(act.cleaned_html):
        places.setdefault(node[1], len(places))
    last = float("inf")
    return tuple(sorted(all_of, key=lambda id: (ranks.get(id, last), places.get(id, last), id)))
