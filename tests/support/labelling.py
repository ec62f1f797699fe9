"""The page on which a person labels, made from files, and a client that asks as the page does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prill.evaluators.questions import Question
from prill.io.store import encode
from prill.types import LabelRecord, Verdict
from prill.ui.serving import serving
from prill.ui.view.label_log import LabelLog
from prill.ui.view.library import Library
from prill.ui.view.session import LabelSession
from prill.ui.view.site import ViewSite

if TYPE_CHECKING:
    import aiohttp


@contextmanager
def labelling(
    trajectories: Path,
    labels: Path,
    annotator: str = "me",
    *,
    earlier: Iterable[LabelRecord] = (),
    others: Iterable[Path] = (),
    verdicts: Iterable[Verdict] = (),
    blind: bool = True,
    questions: Iterable[Question] = (),
) -> Iterator[ViewSite]:
    """The page of one annotator, with labels and verdicts of others in files next to the labels."""
    said, people = (labels.with_name(f"{labels.stem}.{name}.jsonl") for name in ("v", "earlier"))
    said.write_bytes(b"".join(map(encode, verdicts)))
    people.write_bytes(b"".join(map(encode, earlier)))
    with (
        closing(Library([trajectories], [said], [people, *others], annotator=annotator)) as library,
        LabelLog(labels, annotator) as log,
    ):
        library.begin_labels(log)
        for _ in library.refresh():
            pass
        yield ViewSite(library, LabelSession(library, log, questions=tuple(questions)), blind=blind)


class Client:
    """Asks a served page as its own script does, unless told otherwise."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http, self.url = http, url
        self.base = url.rstrip("/").rpartition("/")[0]

    async def get(self, path: str = "", **headers: str) -> tuple[int, bytes]:
        async with self.http.get(self.url + path, headers=headers) as answer:
            return answer.status, await answer.read()

    async def json(self, path: str) -> Any:
        status, body = await self.get(path)
        assert status == 200, body
        return json.loads(body)

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, Any]:
        sent = {"Content-Type": "application/json", "Origin": self.base, **headers}
        async with self.http.post(self.url + path, data=json.dumps(body), headers=sent) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(text) if is_json else text


@asynccontextmanager
async def asked(site: ViewSite) -> AsyncIterator[Client]:
    """Serves a page, and asks it."""
    import aiohttp

    async with serving(site) as url, aiohttp.ClientSession() as http:
        yield Client(http, url)
