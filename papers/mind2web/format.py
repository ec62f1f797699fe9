"""Reads Mind2Web (arXiv 2306.06070) and MT-Mind2Web (ACL 2024), JSON files of tasks or of
conversations with tasks as turns, and Multimodal-Mind2Web (SeeAct, arXiv 2401.01614;
osunlp/Multimodal-Mind2Web on the Hugging Face hub), Parquet with one action per row.

A JSON file is an array of records, or has one record per line, and may be larger than memory. A
turn becomes a trajectory of its gold actions. The observation of a step is a `PageState`: the
cleaned page, all candidates, and the earlier actions of this turn. Ranked candidates come first;
the rest follow in page order, so that the position does not reveal the right ones.
`action.target` holds the right nodes, in the order of the record. It is empty where cleaning has
removed them.

In Parquet, `operation` and each candidate are JSON strings, `target_action_index` is the index in
`action_reprs`, and the rows of a task are joined even if they are not adjacent.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any

import msgspec

from prill.datasets.reading.records import UNREADABLE
from prill.datasets.reading.safe_pickle import fields, load_pickle
from prill.datasets.reading.sources import Source
from prill.errors import InputError, MissingExtraError, UsageError
from prill.io.store import BadLine, open_lines
from prill.papers.mind2web.pages.state import (
    PageState,
    Scores,
    read_scores,
    sample_ids,
    without_pages,
)
from prill.types import Action, Observation, Step, StrPath, Task, Trajectory

SUFFIX = ".parquet"
_TASK = ("annotation_id", "confirmed_task", "action_reprs", "website", "domain", "subdomain")
_LISTS = ("pos_candidates", "neg_candidates")
_ACTION = ("action_uid", "operation", "cleaned_html", *_LISTS)
_INDEX = "target_action_index"
_COLUMNS = (*_TASK, *_ACTION, _INDEX)
_ROWS = 8  # rows read at once: a page has up to several megabytes
# The maximum bytes of our columns in one row group. The data set's row groups have up to several
# hundred rows.
_LARGEST = 4 << 30


def read_tasks(paths: Sequence[Path]) -> Iterator[tuple[str, Any] | BadLine]:
    """Yields the tasks of Parquet files with the `indexes` of their actions, or a BadLine."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow") from None
    counts: Counter[str] = Counter()
    files: list[Path] = []
    for path in paths:
        try:
            _check(pyarrow.parquet.ParquetFile(path))
            ids = pyarrow.parquet.read_table(path, columns=["annotation_id"])
            counts.update(map(str, ids.column(0).to_pylist()))
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            yield _bad(str(path), str(error))
            continue
        files.append(path)
    # the rows of the tasks that are not complete yet, each with its position
    groups: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for path in files:
        number = 0
        try:
            batches = pyarrow.parquet.ParquetFile(path).iter_batches(
                batch_size=_ROWS, columns=list(_COLUMNS)
            )
            rows_of_file = (row for batch in batches for row in batch.to_pylist())
            for number, row in enumerate(rows_of_file, 1):
                id = str(row["annotation_id"])
                rows = groups.setdefault(id, [])
                rows.append((f"{path}[{number - 1}]", row))
                if len(rows) == counts[id]:
                    yield _task(f"{path}: {id}", groups.pop(id))
        except (pyarrow.ArrowException, OSError) as error:
            yield _bad(str(path), f"damaged after {number} rows, which were read: {error}")
    for id, rows in groups.items():
        left = counts[id] - len(rows)
        yield _bad(f"{files[-1].parent}: {id}", f"{left} of its rows could not be read")


def _check(file: Any) -> None:
    """Raises ValueError for other columns and for oversized row groups."""
    names = file.schema_arrow.names
    if missing := [name for name in _COLUMNS if name not in names]:
        raise ValueError(
            f"not Multimodal-Mind2Web: the columns {', '.join(missing)} are missing (for "
            "Mind2Web's own data, give the JSON file)"
        )
    for i in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(i)
        columns = map(group.column, range(group.num_columns))
        ours = (one for one in columns if one.path_in_schema.partition(".")[0] in _COLUMNS)
        size = sum(one.total_uncompressed_size for one in ours)
        if size > _LARGEST:
            raise ValueError(
                f"row group {i} has {size:,} bytes, more than the limit of {_LARGEST:,}"
            )


def _decoded(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, str) else value


def _candidate(value: Any) -> Any:
    """Parses a candidate. Some copies of the data store the node's id only among its attributes."""
    if isinstance(value, dict) and not value.get("backend_node_id"):
        attributes = _decoded(value.get("attributes") or {})
        if isinstance(attributes, dict):
            return {**value, "backend_node_id": attributes.get("backend_node_id")}
    return value


def _task(place: str, rows: Sequence[tuple[str, dict[str, Any]]]) -> tuple[str, Any] | BadLine:
    """Joins the rows of a task, an action each."""
    actions: dict[int, dict[str, Any]] = {}
    for at, row in rows:
        try:
            index = int(row[_INDEX])
            if index in actions:
                raise ValueError(f"a second row for action {index}")
            action = {name: row[name] for name in _ACTION}
            action["operation"] = _decoded(row["operation"])
            for name in _LISTS:
                action[name] = [_candidate(_decoded(one)) for one in row[name] or ()]
        except (*UNREADABLE, ValueError, TypeError) as error:
            return _bad(place, f"{at}: {error}")
        actions[index] = action
    ordered = sorted(actions)
    task = {name: rows[0][1][name] for name in _TASK}
    return place, {**task, "actions": [actions[index] for index in ordered], "indexes": ordered}


def _bad(place: str, problem: str) -> BadLine:
    return BadLine(place, place, " ".join(problem.split())[:300], b"")


_KINDS = {"CLICK": "click", "TYPE": "type", "SELECT": "select"}
_SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz", SUFFIX)
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
    """Returns whether a source begins as Mind2Web's documents do, or has its Parquet columns."""
    return source.has(_is_ours, "*.json", "*.json.gz", f"*{SUFFIX}")


def _is_ours(file: Source) -> bool:
    if file.path.suffix == SUFFIX:
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
    source: StrPath,
    scores: Annotated[
        StrPath | Scores | None,
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
    yield _bad(
        name,
        f"lacks {steps - ordered} of the {steps} steps; their candidates are not in the order "
        "of scores",
    )


def _files(source: StrPath) -> list[Path]:
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
    """Returns a sort key: `train_10.json` after `train_9.json`."""
    stem = path.name.partition(".")[0]
    number = None if path.suffix == SUFFIX else _NUMBER.search(stem)
    return str(path.parent), int(number[1]) if number else -1, path.name


def _scores(scores: StrPath | Scores | None) -> Scores:
    if scores is None or isinstance(scores, Mapping):
        return scores or {}
    try:
        if _first_byte(scores) == b"{":
            return read_scores(scores)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{scores}: cannot be read: {error}") from None
    pickled = load_pickle(scores, largest=_LARGEST_SCORES, most_steps=_MAX_OPCODES)
    try:
        # The rankers' code fills a subclass of dict, `defaultdict(dict)`.
        by_sample = {
            name: fields(one) for name, one in fields(fields(pickled).get("scores")).items()
        }
        if not by_sample:
            raise msgspec.ValidationError("no scores - at `$.scores`")
        return msgspec.convert(by_sample, dict[str, dict[str, float]])
    except msgspec.ValidationError as error:
        raise InputError(f"{scores}: not a Mind2Web score file: {error}") from None


def records(source: StrPath) -> Iterator[tuple[str, Any] | BadLine]:
    """Yields every record with its position. A damaged file ends with a BadLine."""
    files = _files(source)
    tables = [path for path in files if path.suffix == SUFFIX]
    for path in files:
        if path not in tables:
            yield from _records(path)
    if tables:
        yield from read_tasks(tables)


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
        yield _bad(place, f"damaged after {count} records, which were read: {error}")
        return
    if not count:
        yield _bad(place, "holds no records")


def _first_byte(path: StrPath) -> bytes:
    with open_lines(path) as file:
        return file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]


def _turns(place: str, record: Any, scores: Scores) -> Iterator[Trajectory | BadLine]:
    """Yields the turns of a conversation, or the single turn of a task."""
    if not isinstance(record, dict) or not isinstance(turns := record.get("turns", [record]), list):
        yield _bad(
            place,
            "neither a task (annotation_id, confirmed_task, actions) nor a conversation (turns)",
        )
        return
    single = "turns" not in record
    earlier: list[Trajectory] = []
    for number, raw in enumerate(turns):
        where = place if single else f"{place}.turns[{number}]"
        try:
            turn = _trajectory(msgspec.convert(raw, _Turn), record, number, tuple(earlier), scores)
        except (*UNREADABLE, InputError) as error:
            yield _bad(where, str(error))
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
    whole = len(turn.action_reprs) == len(turn.actions)
    indexes = turn.indexes or (list(range(len(turn.actions))) if whole else None)
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
    both = (*act.pos_candidates, *act.neg_candidates)
    ranks = {one.backend_node_id: inf if one.rank is None else one.rank for one in both}
    if scores:
        ranks = {id: -scores.get(id, -inf) for id in ranks}
    places = {id: i for i, id in enumerate(dict.fromkeys(_NODE.findall(act.cleaned_html)))}
    return tuple(sorted(ranks, key=lambda id: (ranks[id], places.get(id, inf), id)))
