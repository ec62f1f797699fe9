"""The exemplar memory: recorded solutions, retrieved by the similarity of tasks and first pages.

A memory is a folder: `exemplars.jsonl` (one exemplar per line), `abstractions.json` (how a task's
pages are abstracted), `memory.json` (the embedder's name) and `vectors.npy` (an array with one row
per line). The folder format of the paper's authors, with `exemplars.json` and `specifiers.json`, is
read too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from prill.errors import UsageError
from prill.io.lines import decode_json, read_json, read_whole
from prill.io.outputs import make_folder, write_output
from prill.models.prompts import content_hash
from prill.papers.embedders import CachedEmbedder, Embedder, Fitted, own_embedder
from prill.types import StrPath

if TYPE_CHECKING:
    from prill.papers.embedders import Vectors

_T = TypeVar("_T")
NEIGHBOURS = 3  # arXiv 2306.07863, section 3.3: three nearest keys vote
EXEMPLARS, ABSTRACTIONS, HEADER, VECTORS = (
    "exemplars.jsonl",
    "abstractions.json",
    "memory.json",
    "vectors.npy",
)
_REMEDY = "give the folder of a memory, or make it again"
_AGAIN = f"delete {VECTORS}, and they are worked out again"
_UPSTREAM, _UPSTREAM_KEYS = "exemplars.json", "specifiers.json"


class ExemplarTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """The observation, as the page's text or in abstracted form, and the calls made on it."""

    action: str
    state: str | None = None
    observation: str | None = None


class Exemplar(msgspec.Struct, frozen=True, omit_defaults=True):
    """One solution of the task `name`, retrieved by `key`; without steps only an additional key."""

    name: str
    key: str = ""
    task: str = ""
    steps: tuple[ExemplarTurn, ...] = ()
    provenance: str = "hand"
    source: str = ""


class Abstraction(msgspec.Struct, frozen=True, omit_defaults=True):
    """How pages of a task are abstracted, by turn. `acting` precedes unabstracted exemplars."""

    instructions: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    acting: str = ""


class MemoryEntry(msgspec.Struct, frozen=True):
    """The exemplars and abstractions of one task."""

    name: str
    exemplars: tuple[Exemplar, ...]
    abstraction: Abstraction = Abstraction()

    @property
    def has_turns(self) -> bool:
        """Whether its solutions observe the page more than once."""
        return any(len(exemplar.steps) > 1 for exemplar in self.exemplars)

    @property
    def has_words(self) -> bool:
        """Whether any of its solutions has an abstracted page."""
        steps = (step for exemplar in self.exemplars for step in exemplar.steps)
        return any(step.observation is not None for step in steps)

    @property
    def abstracts(self) -> bool:
        """Whether it defines how pages are abstracted: by examples, instructions or code."""
        way = self.abstraction
        return self.has_words or any(way.instructions) or any(way.code)


class _Header(msgspec.Struct):
    embedder: str
    keys: str  # a hash of the keys that the vectors' rows belong to
    version: int = 1


def key_text(task: str, state: str) -> str:
    """Returns the key of an exemplar, the task first: embedders may read only the beginning."""
    return f"Task: {task}\nState:\n{state}"


class ExemplarMemory:
    """A collection of exemplars, retrieved by the similarity of their keys.

    Args:
        exemplars: The exemplars.
        abstractions: How the pages of a task are shortened, by task. None: no task's are.
        embedder: Embeds keys.
        vectors: The embedded keys, of shape (exemplars, dimensions). None: computed when needed.
    """

    def __init__(
        self,
        exemplars: Sequence[Exemplar],
        abstractions: Mapping[str, Abstraction] | None = None,
        *,
        embedder: Embedder,
        vectors: Vectors | None = None,
    ) -> None:
        self.exemplars = tuple(exemplars)
        self.abstractions = dict(abstractions or {})
        self.embedder = own_embedder(embedder)
        self._vectors = vectors
        if vectors is not None and isinstance(self.embedder, CachedEmbedder):
            keys = (exemplar.key for exemplar in self.exemplars)
            self.embedder.known.update(zip(keys, vectors, strict=True))

    @property
    def hash(self) -> str:
        """A hash of the memory's content and the embedder's name."""
        return content_hash(
            self.embedder.name,
            _lines(self.exemplars).decode(),
            _encoded(self.abstractions).decode(),
        )

    def entry(self, name: str) -> MemoryEntry | None:
        """Returns the exemplars of a task.

        Returns:
            Its exemplars. None if there are none.
        """
        found = tuple(one for one in self.exemplars if one.name == name and one.steps)
        return (
            MemoryEntry(name, found, self.abstractions.get(name, Abstraction())) if found else None
        )

    async def vectors(self) -> Vectors:
        """Returns a row for each exemplar. Known rows are not embedded again."""
        if self._vectors is None:
            keys = [exemplar.key for exemplar in self.exemplars]
            if isinstance(self.embedder, Fitted):
                self.embedder.fit(keys)
            self._vectors = await self.embedder.embed(keys)
        return self._vectors

    def with_exemplars(self, exemplars: Sequence[Exemplar]) -> ExemplarMemory:
        """Returns a memory of other exemplars. This memory is not changed.

        Args:
            exemplars: The exemplars. The vectors of known keys are reused.
        """
        return ExemplarMemory(exemplars, self.abstractions, embedder=self.embedder)

    async def distances(self, text: str) -> list[float]:
        """Returns the distance of each key to a text.

        Returns:
            The Euclidean distances, in the order of the exemplars.
        """
        import numpy as np

        if not self.exemplars:
            return []
        rows = await self.vectors()
        query = (await self.embedder.embed([text]))[0]
        if rows.shape[1] != len(query):
            raise UsageError(
                f"{self.embedder.name} gave a vector of {len(query)} numbers, and the memory's "
                f"have {rows.shape[1]}: make the memory again with it"
            )
        found: list[float] = np.linalg.norm(rows - query, axis=1).tolist()
        return found

    async def nearest(self, text: str, most: int = NEIGHBOURS) -> list[tuple[float, Exemplar]]:
        """Returns the exemplars whose keys are nearest to a text.

        Args:
            text: The text.
            most: How many to return.

        Returns:
            Distances and exemplars, the nearest first; equally near ones in their stored order.
        """
        distances = await self.distances(text)
        keyed = (i for i, exemplar in enumerate(self.exemplars) if exemplar.key)
        order = sorted(keyed, key=lambda i: round(distances[i], 6))[:most]
        return [(distances[i], self.exemplars[i]) for i in order]

    async def vote(self, text: str, most: int = NEIGHBOURS) -> str | None:
        """Returns the task that a text most likely belongs to.

        Args:
            text: The text.
            most: How many of the nearest keys vote.

        Returns:
            The task with the most votes, or the task of the nearest key in a tie. None for an
            empty memory.
        """
        names = Counter(exemplar.name for _, exemplar in await self.nearest(text, most))
        return names.most_common(1)[0][0] if names else None

    async def save(self, folder: StrPath) -> None:
        """Writes the memory, without vectors that depend on the whole of it."""
        import io

        import numpy as np

        directory = Path(folder)
        make_folder(directory / EXEMPLARS)
        write_output(directory / EXEMPLARS, _lines(self.exemplars))
        write_output(directory / ABSTRACTIONS, _encoded(self.abstractions))
        if not isinstance(self.embedder, Fitted):
            data = io.BytesIO()
            np.save(data, await self.vectors(), allow_pickle=False)
            write_output(directory / VECTORS, data.getvalue())
        header = _Header(self.embedder.name, _hash_of_keys(self.exemplars))
        write_output(directory / HEADER, msgspec.json.format(msgspec.json.encode(header)) + b"\n")

    @classmethod
    def load(cls, folder: StrPath | None, embedder: Embedder) -> ExemplarMemory:
        """Reads a memory.

        Args:
            folder: The folder. None: the memory that ships with prill.
            embedder: Embeds keys.

        Raises:
            UsageError: The folder cannot be read, or another embedder made its vectors.
        """
        if folder is None:
            return cls(_shipped(), _shipped_abstractions(), embedder=embedder)
        directory = Path(folder)
        if (directory / _UPSTREAM).is_file() and not (directory / EXEMPLARS).is_file():
            return cls(*_read_upstream(directory), embedder=embedder)
        header = _decoded(directory / HEADER, _Header) if (directory / HEADER).is_file() else None
        if header is not None and header.embedder != embedder.name:
            raise UsageError(
                f"{directory}: its vectors were made with {header.embedder}, not with "
                f"{embedder.name}; use that embedder with the same weights, or make the "
                "memory again",
                parameters=("embedder",),
            )
        exemplars = tuple(_read_lines(directory / EXEMPLARS))
        shortened, vectors = directory / ABSTRACTIONS, None
        named = _decoded(shortened, dict[str, Abstraction]) if shortened.is_file() else {}
        if header and not isinstance(embedder, Fitted) and (directory / VECTORS).exists():
            if header.keys != _hash_of_keys(exemplars):
                raise UsageError(
                    f"{directory}: the keys in {EXEMPLARS} have changed since the vectors were "
                    f"made; {_AGAIN}"
                )
            vectors = _read_vectors(directory / VECTORS, len(exemplars))
        return cls(exemplars, named, embedder=embedder, vectors=vectors)


def _hash_of_keys(exemplars: Sequence[Exemplar]) -> str:
    return content_hash(*(exemplar.key for exemplar in exemplars))


def _lines(exemplars: Sequence[Exemplar]) -> bytes:
    return b"".join(msgspec.json.encode(exemplar) + b"\n" for exemplar in exemplars)


def _encoded(abstractions: Mapping[str, Abstraction]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(dict(sorted(abstractions.items())))) + b"\n"


def _decoded(path: Path, type_: type[_T]) -> _T:
    return read_json(path, type_, "not of a memory of exemplars", _REMEDY)


def _read_lines(path: Path) -> Iterator[Exemplar]:
    for number, line in enumerate(read_whole(path, _REMEDY).splitlines(), 1):
        if line.strip():
            yield decode_json(line, Exemplar, f"{path}, line {number}: not an exemplar", _REMEDY)


def _read_vectors(path: Path, rows: int) -> Vectors:
    import numpy as np

    try:
        found: Vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: the vectors cannot be read ({error}); {_AGAIN}") from None
    if found.ndim != 2 or len(found) != rows:
        raise UsageError(
            f"{path}: {len(found) if found.ndim else 0} vectors, but {rows} exemplars; {_AGAIN}"
        )
    if found.dtype.kind != "f" or not np.isfinite(found).all():
        raise UsageError(f"{path}: the vectors contain a value that is not a number; {_AGAIN}")
    return found


@cache
def _shipped() -> tuple[Exemplar, ...]:
    """Returns the exemplars that come with prill. Keys of task and first page are omitted."""
    lines = _read_lines(Path(str(resources.files("prill.papers.synapse"))) / "tasks" / EXEMPLARS)
    return tuple(
        one if one.key else replace(one, key=key_text(one.task, one.steps[0].state or ""))
        for one in lines
    )


@cache
def _shipped_abstractions() -> dict[str, Abstraction]:
    """Returns the prompts for code: `code_<task>.md`, or `code_<task>-1.md` for turns."""
    prompts = dict[str, list[str]]()
    for file in sorted(
        (resources.files("prill.papers.synapse") / "prompts").iterdir(), key=lambda file: file.name
    ):
        if match := re.fullmatch(r"code_(\w+)(?:-\d)?\.md", file.name):
            prompts.setdefault(match[1].replace("_", "-"), []).append(
                file.read_text(encoding="utf-8").strip()
            )
    return {name: Abstraction(code=tuple(texts)) for name, texts in prompts.items()}


def _read_upstream(folder: Path) -> tuple[list[Exemplar], dict[str, Abstraction]]:
    """Reads the files of the paper's authors: exemplars by task, and five keys for each."""
    try:
        entries = json.loads(read_whole(folder / _UPSTREAM, _REMEDY))
        keys = json.loads(read_whole(folder / _UPSTREAM_KEYS, _REMEDY))
        exemplars = [
            Exemplar(name, key=key, provenance="upstream")
            for name, texts in keys.items()
            for key in texts
        ]
        abstractions = dict[str, Abstraction]()
        for name, entry in entries.items():
            for demo in entry["demo"]:
                steps = tuple(
                    ExemplarTurn(one["act"], one.get("state"), one.get("obs"))
                    for one in demo.get("trajectory", [demo])
                )
                exemplars.append(
                    Exemplar(name, task=demo.get("task", ""), steps=steps, provenance="upstream")
                )
            abstractions[name] = Abstraction(
                _several(entry.get("filter_prompt")),
                _several(entry.get("code_filter_prompt")),
                entry.get("ablation_act_prompt", ""),
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{folder}: not the paper's exemplars.json and specifiers.json ({error})"
        ) from None
    return exemplars, abstractions


def _several(prompt: str | list[str] | None) -> tuple[str, ...]:
    return () if not prompt else (prompt,) if isinstance(prompt, str) else tuple(prompt)
