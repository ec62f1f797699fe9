"""Texts that another model writes once for a conversation, and the file that caches them: reasons
for earlier actions (memory refinement), and standalone instructions (the baseline CAR).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

import msgspec

from prill.errors import NoEvidenceError, UnparsableError, UsageError
from prill.models.prompts import clean, content_hash, quoted
from prill.papers.answers import fill_prompt, said_by
from prill.papers.mind2web.mindact.forms import PACKAGE, Wording, operation_lines, to_operation
from prill.papers.mind2web.mindact.memory import Snippet
from prill.protocols import LanguageModel
from prill.types import Task

_MAX_TOKENS = 100  # Self-MAP's code: gpt-3.5-turbo-1106 at temperature 0
_PUT = Wording("choice", prompted=True)


class _Line(msgspec.Struct):
    key: str
    text: str
    model: str = ""


class Sentences:
    """Cached sentences by key. With a path they are kept in a file and reused by the next run."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept: dict[str, str] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        self._ends = b""
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                kept = msgspec.json.decode(line, type=_Line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                if number == len(lines):  # incomplete line of an interrupted run
                    break
                raise UsageError(
                    f'{path}, line {number}: {error}; each line is {{"key": …, "text": …}}'
                ) from None
            self._kept[kept.key] = kept.text
        self._ends = b"\n" if lines[-1] else b""

    async def get(
        self, key: str, model: LanguageModel | None, what: str, ask: Callable[[], Awaitable[str]]
    ) -> str:
        """Returns the sentence for a key, and requests it if it is not cached. Raises
        NoEvidenceError without a model, and the model's errors.
        """
        if key not in self._kept:
            async with self._asking.setdefault(key, asyncio.Lock()):
                if key not in self._kept:
                    if model is None:
                        raise NoEvidenceError(
                            f"{self._path} has no {what} for {key}; name a model to write it"
                        )
                    self._keep(_Line(key, await ask(), model.name))
            self._asking.pop(key, None)
        return self._kept[key]

    def _keep(self, line: _Line) -> None:
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("ab") as file:
                    file.write(self._ends + msgspec.json.encode(line) + b"\n")
            except OSError as error:
                raise UsageError(f"{self._path}: {error.strerror}") from None
            self._ends = b""
        self._kept[line.key] = line.text


@cache
def _opened(path: Path) -> Sentences:
    return Sentences(path)


def sentences_in(path: Path | None) -> Sentences:
    """Returns the cache of a file, shared by all episodes of this process. Without a path, the
    cache belongs to one policy.

    Raises UsageError if the file cannot be read or has an invalid line.
    """
    return Sentences(None) if path is None else _opened(path.resolve())


async def rationale(
    snippet: Snippet,
    positive: str,
    page: str,
    model: LanguageModel | None,
    kept: Sentences,
    prompt: str,
) -> str:
    """Returns the reason why the recorded action of an earlier step was right. `page` is the page
    cut around its element, `positive`, only.
    """

    async def ask() -> str:
        assert model is not None
        values = {
            "page": quoted("page", page),
            "question": _PUT.question(snippet.instruction, snippet.past, None),
            "answer": quoted("answer", "\n".join(operation_lines(*to_operation(snippet.action)))),
        }
        return await _said(model, "rationale", values, prompt)

    return await kept.get(f"{snippet.key}_{positive}", model, "rationale", ask)


async def rewritten(task: Task, model: LanguageModel | None, kept: Sentences, prompt: str) -> str:
    """Returns the instruction of a turn, rewritten to be standalone. The first turn's instruction
    is unchanged.
    """
    if not task.earlier:
        return task.goal

    async def ask() -> str:
        assert model is not None
        earlier = "\n".join(f"{i}. {run.task.goal}" for i, run in enumerate(task.earlier, 1))
        return await _said(
            model,
            "rewrite",
            {"earlier": quoted("requests", earlier), "request": quoted("request", task.goal)},
            prompt,
        )

    key = task.id or content_hash(task.goal, *(run.task.goal for run in task.earlier))
    return await kept.get(key, model, "instruction", ask)


async def _said(model: LanguageModel, name: str, values: dict[str, str], prompt: str) -> str:
    messages = fill_prompt(PACKAGE, name, values)
    said = await said_by(model, messages, max_tokens=_MAX_TOKENS, prompt=prompt)
    if not (sentence := " ".join(clean(said.rpartition("</think>")[2]).split())):
        raise UnparsableError(
            f"{model.name} did not write the {'sentence' if name == 'rationale' else 'instruction'}"
        )
    return sentence
