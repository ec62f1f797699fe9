"""Reads OpenAI Responses: runs as lists of items, or as API responses with or without their input.

A file is a JSON document or JSON lines. A list of items, or an item per line, is one run. A
response is an object with `output` and its `input` next to it, or a pair of `request` and
`response`; responses joined by `previous_response_id` are one run. Without `input`, a response
shows the agent's actions but not its observations. (openai, `openai.types.responses`;
openai/openai-cua-sample-app, agent/agent.py)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike

from prill.datasets.reading.images import RecordImages, image_store
from prill.datasets.reading.records import read_record
from prill.datasets.reading.responses import (
    Response,
    is_item,
    is_response,
    parse_response,
    to_trajectory,
)
from prill.datasets.reading.sources import Document, Source, read_documents
from prill.io.store import BadLine
from prill.types import Trajectory

_PATTERNS = ("*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz")


def load(
    source: str | PathLike[str], *, images: str | PathLike[str] | None = None
) -> Iterator[Trajectory | BadLine]:
    """Yields the runs of a file, or of the files below a folder.

    Ids are those of the last response, else the file's path, with `#2`, `#3`… for further runs. The
    goal of a run without a user's text is empty. Coordinates are pixels of the image if no tool
    states the screen's size. Images given as data URLs are written to the folder `images`; without
    one, to a temporary folder whose images are removed when the next run is requested.
    """
    with image_store(images) as store:
        unpacked = RecordImages(store)
        for document in read_documents(source, _is_ours, *_PATTERNS):
            if isinstance(document, BadLine):
                yield document
                continue
            for place, run in _runs(document):
                unpacked.next_record()
                yield (
                    run
                    if isinstance(run, BadLine)
                    else read_record(place, partial(_trajectory, run, unpacked))
                )


def recognise(source: Source) -> bool:
    """Returns whether the source has a response with its output, or an item that only this API
    has.
    """
    return source.has(_is_ours, *_PATTERNS)


def _is_ours(file: Source) -> bool:
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


@dataclass(frozen=True)
class _Run:
    """The responses of one run in order; a list of items is one response without an id."""

    id: str
    responses: tuple[Response, ...]


def _runs(document: Document) -> Iterator[tuple[str, _Run | BadLine]]:
    """Yields the runs of a file, each with its position."""
    records = document.records
    if is_response(records[0][1]) or any(is_response(value) for _, value in records):
        yield from _chains(document)
        return
    items = [value for _, value in records]
    if len(items) == 1 and isinstance(items[0], list):
        items = items[0]
    yield document.place, _Run(document.name, (Response(output=[], input=items),))


def _chains(document: Document) -> Iterator[tuple[str, _Run | BadLine]]:
    """Yields one run for each response that no other one continues."""
    read: dict[str, tuple[str, Response]] = {}  # by id, or by position
    for place, value in document.records:
        response = read_record(place, partial(parse_response, value))
        if isinstance(response, BadLine):
            yield place, response
        else:
            read[response.id or place] = place, response
    continued = {response.previous_response_id for _, response in read.values()}
    count = 0
    for key, (place, response) in read.items():
        if key in continued:
            continue
        count += 1
        chain, seen = [response], {key}
        while (before := chain[-1].previous_response_id) in read and before not in seen:
            seen.add(before)
            chain.append(read[before][1])
        name = document.name if count == 1 else f"{document.name}#{count}"
        yield place, _Run(response.id or name, tuple(reversed(chain)))


def _trajectory(run: _Run, images: RecordImages) -> Trajectory:
    return to_trajectory(run.id, run.responses, images)
