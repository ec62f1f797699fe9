"""Reads OpenAI Responses: runs as lists of items, or as API responses with or without their input.

A file is a JSON document or JSON lines. A list of items, or an item per line, is one run. A
response is an object with `output` and its `input` next to it, or a pair of `request` and
`response`; responses joined by `previous_response_id` are one run. Without `input`, a response
shows the agent's actions but not its observations. (openai, `openai.types.responses`;
openai/openai-cua-sample-app, agent/agent.py)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from prill.datasets.reading.groups import RecordGroups
from prill.datasets.reading.images import RecordImages, Run, read_runs
from prill.datasets.reading.records import read_record
from prill.datasets.reading.responses import (
    Response,
    is_item,
    is_response,
    parse_response,
    to_trajectory,
)
from prill.datasets.reading.sources import JSON_FILES, Document, Source, read_documents
from prill.io.store import BadLine
from prill.types import StrPath, Trajectory


def load(source: StrPath, *, images: StrPath | None = None) -> Iterator[Trajectory | BadLine]:
    """Yields the runs of a file, or of the files below a folder.

    Ids are those of the last response, else the file's path, with `#2`, `#3`… for further runs. The
    goal of a run without a user's text is empty. Coordinates are pixels of the image if no tool
    states the screen's size.
    """
    return read_runs(read_documents(source, _matches_format, JSON_FILES, _runs), images)


def recognise(source: Source) -> bool:
    """Returns whether the source has a response with output, or an item that only this API has."""
    return source.has(_matches_format, *JSON_FILES)


def _matches_format(file: Source) -> bool:
    value = file.value
    if is_response(value) or is_item(value):
        return True
    if isinstance(value, list):
        return any(is_response(one) or is_item(one) for one in value)
    # The first line of a list of items is the user's message.
    return (
        isinstance(value, dict)
        and "role" in value
        and any(is_item(record) for record in file.records)
    )


def _runs(document: Document) -> Iterator[Run | BadLine]:
    """Yields the runs of a file."""
    if any(is_response(value) for _, value in document.records()):
        yield from _chains(document)
        return
    records = read_record(document.place, document.read_all)
    if isinstance(records, BadLine):
        yield records
        return
    yield from (value for _, value in records if isinstance(value, BadLine))
    items = [value for _, value in records if not isinstance(value, BadLine)]
    if len(items) == 1 and isinstance(items[0], list):
        items = items[0]
    # a list of items is one response without an id
    response = Response(output=[], input=items)
    yield document.place, None, partial(to_trajectory, document.name, (response,))


def _chains(document: Document) -> Iterator[Run | BadLine]:
    """Yields one run for each response that no other one continues."""
    read: dict[str, tuple[str, str | None, str]] = {}  # by id, or by position
    with RecordGroups(Response) as groups:
        for number, (place, value) in enumerate(document.records()):
            response = (
                value
                if isinstance(value, BadLine)
                else read_record(place, partial(parse_response, value))
            )
            if isinstance(response, BadLine):
                yield response
                continue
            key = str(number)
            groups.add(key, response)
            read[response.id or place] = key, response.previous_response_id, place
        continued = {before for _, before, _ in read.values()}
        count = 0
        for id, (key, before, place) in read.items():
            if id in continued:
                continue
            count += 1
            keys, seen = [key], {id}
            while before in read and before not in seen:
                seen.add(before)
                key, before, _ = read[before]
                keys.append(key)
            name = document.name if count == 1 else f"{document.name}#{count}"
            # a response without an id is never continued, and has its position as the key
            read_chain = partial(groups.read, *reversed(keys))
            yield place, None, partial(_trajectory, name if id == place else id, read_chain)


def _trajectory(
    id: str, read: Callable[[], Sequence[Response]], images: RecordImages
) -> Trajectory:
    return to_trajectory(id, tuple(read()), images)
