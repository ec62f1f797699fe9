"""Converts records to Hugging Face `Dataset` rows and back without loss."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UnsetType

from prill.errors import InputError, MissingExtraError, UsageError
from prill.io.checks import check_record
from prill.io.faults import take_unknown
from prill.io.store import with_screenshots
from prill.temporary import in_memory
from prill.types import LabelRecord, Observation, Task, Trajectory, Verdict

if TYPE_CHECKING:
    from datasets.arrow_dataset import Dataset
    from datasets.iterable_dataset import IterableDataset

_Record = TypeVar("_Record", Trajectory, Verdict, LabelRecord)
_ROWS = 1000  # rows per chunk of an Arrow table
_PIECE = 16  # rows that are read at once, with their images
_VALUES = {str: "string", bool: "bool", int: "int64", float: "float64"}
_IMAGE, _JSON = "image", "json"  # column kinds other than plain values


def to_dataset(
    records: Iterable[Trajectory] | Iterable[Verdict] | Iterable[LabelRecord],
) -> Dataset:
    """Converts records to a Hugging Face `Dataset`, one row per record; `prill.from_dataset`
    reverses it.

    The columns are the fields of the record, nested in the same way:
    `ds[0]["steps"][0]["action"]["kind"]`. Screenshots are `datasets.Image` values by path;
    `save_to_disk` and `push_to_hub` include their bytes. `metadata`, the settings of a judge and
    earlier turns of a conversation are JSON in a text column; screenshots of earlier turns are
    paths in it.

    Args:
        records: Trajectories, verdicts or labels, all of one kind. The dataset is held in memory,
            without the images.

    Returns:
        A `datasets.Dataset`.

    Raises:
        MissingExtraError: `datasets` is not installed; the message says how to install it.
        UsageError: There are no records, or records of several kinds.
        InputError: A record has a value of the wrong type; the message names the field.
    """
    arrow_dataset, features, pyarrow = _packages()
    known = iter(records)
    first = next(known, None)
    kind = next(
        (kind for kind in (Trajectory, Verdict, LabelRecord) if isinstance(first, kind)), None
    )
    if kind is None:
        what = "there are none" if first is None else f"got a {type(first).__name__}"
        raise UsageError(f"to_dataset takes trajectories, verdicts or labels; {what}")
    columns = features.Features(_features(kind, features))
    rows = (columns.encode_example(_row(record, kind)) for record in chain([first], known))
    pieces = []
    while some := list(islice(rows, _ROWS)):
        pieces.append(pyarrow.Table.from_pylist(some, schema=columns.arrow_schema))
    return cast("Dataset", arrow_dataset.Dataset(pyarrow.concat_tables(pieces)))


@typing.overload
def from_dataset(dataset: Dataset | IterableDataset) -> Iterator[Trajectory]: ...


@typing.overload
def from_dataset(dataset: Dataset | IterableDataset, kind: type[_Record]) -> Iterator[_Record]: ...


def from_dataset(dataset: Dataset | IterableDataset, kind: type[Any] = Trajectory) -> Iterator[Any]:
    """Yields the records of a Hugging Face dataset, one at a time.

    The dataset must have the columns that `prill.to_dataset` writes (see
    docs/reference/file-formats.md).

    Unknown columns of trajectories go to `metadata`, like unknown keys of files. Images that are
    stored as bytes become temporary files that exist as long as the observation. Images that have
    only a path keep that path. Judges open these paths, so be careful with datasets from untrusted
    sources.

    Args:
        dataset: A `datasets.Dataset` or `IterableDataset`, or one split of a `DatasetDict`.
        kind: `prill.Trajectory`, `prill.Verdict` or `prill.LabelRecord`.

    Returns:
        An iterator of records of that kind.

    Raises:
        MissingExtraError: `datasets` is not installed.
        UsageError: That is not one data set, or it lacks a column that the records need.
        InputError: A row is not such a record; the message has the number of the row, from 0, and
            the field.
    """
    _packages()
    if isinstance(dataset, Mapping):
        raise UsageError(
            f"this is a DatasetDict; choose one split, dataset[{next(iter(dataset), 'train')!r}]"
        )
    if kind not in (Trajectory, Verdict, LabelRecord):
        raise UsageError("kind must be prill.Trajectory, prill.Verdict or prill.LabelRecord")
    known: Any = dataset
    if known.features is not None:
        needed = [
            part.name
            for part in fields(kind)
            if part.default is MISSING and part.default_factory is MISSING
        ]
        if lacking := [name for name in needed if name not in known.features]:
            has = ", ".join(known.features)
            raise UsageError(
                f"the data set has no column {lacking[0]!r}, which a {kind.__name__} needs; it "
                f"has: {has}"
            )
    # In the Arrow format, images stay as stored: path or bytes.
    pieces = known.with_format("arrow").iter(batch_size=_PIECE)
    return _records(chain.from_iterable(piece.to_pylist() for piece in pieces), kind)


def _records(rows: Iterable[Mapping[str, Any]], kind: type[Any]) -> Iterator[Any]:
    for number, row in enumerate(rows):
        try:
            yield _record(row, kind)
        except (msgspec.ValidationError, msgspec.DecodeError, TypeError, ValueError) as error:
            raise InputError(f"row {number} is not a {kind.__name__}: {error}") from None


def _packages() -> tuple[Any, Any, Any]:
    try:
        # Import a submodule: `import datasets` alone would succeed for any folder of that name.
        import datasets.arrow_dataset as arrow_dataset
        import datasets.features as features
        import pyarrow
    except ImportError:
        raise MissingExtraError("datasets") from None
    return arrow_dataset, features, pyarrow


@cache
def _hints(type_: type) -> dict[str, Any]:
    return get_type_hints(type_)


def _inner(type_: type, name: str) -> Any:
    """Returns what a field contains: a type of `_VALUES`, `_IMAGE`, `_JSON`, a dataclass, or a list
    of one of these.
    """
    if type_ is Observation and name == "screenshot":
        return _IMAGE
    # nested trajectories cannot be the type of a column
    if type_ is Task and name == "earlier":
        return _JSON
    return _plain(_hints(type_)[name])


def _plain(hint: Any) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _plain(next(arg for arg in args if arg not in (type(None), UnsetType)))
    if origin is Literal:
        return str
    if origin is tuple:
        return [_plain(args[0])]
    return hint if hint in _VALUES or is_dataclass(hint) else _JSON


def _features(type_: type, features: Any) -> dict[str, Any]:
    def feature(inner: Any) -> Any:
        if isinstance(inner, list):
            return [feature(inner[0])]
        if inner == _IMAGE:
            return features.Image()
        return (
            _features(cast(type, inner), features)
            if is_dataclass(inner)
            else features.Value(_VALUES.get(inner, "string"))
        )

    return {part.name: feature(_inner(type_, part.name)) for part in fields(type_)}


def _row(record: object, kind: type) -> dict[str, Any]:
    if not isinstance(record, kind):
        raise UsageError(
            f"to_dataset takes records of one kind; a {type(record).__name__} is among "
            f"{kind.__name__} records"
        )
    if isinstance(record, Trajectory | LabelRecord):
        check_record(record)
    return cast("dict[str, Any]", _put(msgspec.to_builtins(record), kind))


def _put(value: Any, inner: Any) -> Any:
    if value is None:
        return None
    if isinstance(inner, list):
        return [_put(one, inner[0]) for one in value]
    if is_dataclass(inner):
        type_ = cast(type, inner)
        return {
            part.name: _put(value.get(part.name), _inner(type_, part.name))
            for part in fields(type_)
        }
    if inner == _JSON:
        return msgspec.json.encode(value).decode()
    if inner == _IMAGE:
        # A temporary file is deleted with its record, so its bytes are stored. Given both, the
        # package would keep the path.
        return (
            {"path": None, "bytes": Path(value).read_bytes()}
            if in_memory(value)
            else {"path": value, "bytes": None}
        )
    return value


def _record(row: Mapping[str, Any], kind: type) -> Any:
    images: dict[str, str | bytes] = {}
    record = _taken(dict(row), kind, "$", images)
    if kind is not Trajectory:
        return msgspec.convert(record, kind)
    extras: dict[str, Any] = {}
    take_unknown(record, Trajectory, extras)
    record["metadata"] = {**extras, **(record.get("metadata") or {})}
    trajectory = msgspec.convert(record, Trajectory)
    # An observation that is given bytes manages their temporary file.
    return with_screenshots(trajectory, lambda path, at: cast(str, images.get(at, path)))


def _taken(value: Any, inner: Any, at: str, images: dict[str, str | bytes]) -> Any:
    """Returns a row's value as in a record of plain types; adds screenshots to `images` by path in
    the record.
    """
    if value is None:
        return None
    if isinstance(inner, list):
        return [_taken(one, inner[0], f"{at}[{i}]", images) for i, one in enumerate(value)]
    if is_dataclass(inner) and isinstance(value, Mapping):
        type_ = cast(type, inner)
        names = {part.name for part in fields(type_)}
        files = {
            name: _taken(part, _inner(type_, name), f"{at}.{name}", images)
            if name in names
            else part
            for name, part in value.items()
        }
        # Fields that a record omits are null in a column.
        return {
            name: part
            for name, part in files.items()
            if part is not None or (name in names and _is_optional(type_, name))
        }
    if inner == _JSON:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    if inner == _IMAGE and isinstance(value, Mapping):
        data, path = value.get("bytes"), value.get("path")
        if data is None and path is None:
            return None
        images[at] = str(path) if data is None else bytes(data)
        return path or "image"
    return value


def _is_optional(type_: type, name: str) -> bool:
    # A field that may be absent or null is absent: a column has one null for both.
    args = get_args(_hints(type_)[name])
    return type(None) in args and UnsetType not in args
