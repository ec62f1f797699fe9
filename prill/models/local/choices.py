"""Computes likelihoods of given answers under a small model, without generation.

All answers to a question follow it in one sequence. A mask separates them, and each answer has the
positions directly after the question. The model therefore reads the question only once, and no
answer attends to another.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
import threading
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from prill.errors import ContextTooLongError, EndpointError, UsageError
from prill.models.devices import register_user
from prill.models.local.embedded_weights import embedded_model_folder
from prill.models.local.trained import find_model
from prill.models.local.weights import DTYPES, check_adapter, libraries, load
from prill.models.replies import excerpt
from prill.protocols import Message

_loading = threading.Lock()  # a second caller waits and then uses the loaded model


@dataclass(frozen=True, slots=True)
class _Question:
    """A tokenised question and its answers, each with the end-of-turn token."""

    asked: list[int]
    answers: list[list[int]]

    @property
    def length(self) -> int:
        """Returns the tokens of the whole sequence; final tokens of answers are predicted, not
        read.
        """
        return len(self.asked) + sum(len(answer) - 1 for answer in self.answers)


class Chooser:
    """A loaded model that scores given answers.

    Concurrent questions are processed together, at most `batch` at a time. Batching changes results
    only by rounding: 0.00001 in float32, some tenths in bfloat16.
    """

    def __init__(self, model: Any, tokenizer: Any, *, batch: int = 1) -> None:
        self._model, self._tokenizer, self._batch = model.eval(), tokenizer, batch
        self._waiting: deque[tuple[_Question, asyncio.Future[list[float]]]] = deque()
        self._working: asyncio.Task[None] | None = None

    async def score(self, messages: Sequence[Message], answers: Sequence[str]) -> list[float]:
        """Returns the log-probability of each answer, including its end of turn.

        Raises ContextTooLongError.
        """
        question = self._question(messages, answers)
        future: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            taken = [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]
            # drop cancelled questions
            taken = [(question, future) for question, future in taken if not future.done()]
            if not taken:
                continue
            work = asyncio.to_thread(self._score, [question for question, _ in taken])
            (outcome,) = await asyncio.gather(work, return_exceptions=True)
            for i, (_, future) in enumerate(taken):
                if future.done():
                    continue
                # any exception is passed to the waiting callers; the next batch may succeed
                if isinstance(outcome, BaseException):
                    problem = EndpointError(
                        f"the local model cannot be used: {excerpt(str(outcome), 300)}"
                    )
                    problem.__cause__ = outcome
                    future.set_exception(problem)
                else:
                    future.set_result(outcome[i])

    def _question(self, messages: Sequence[Message], answers: Sequence[str]) -> _Question:
        turns = [
            {"role": m.role, "content": "".join(str(part) for part in m.parts)} for m in messages
        ]
        text = self._tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=False
        )
        end = self._tokenizer.eos_token_id
        question = _Question(
            self._tokens(text), [[*self._tokens(answer), end] for answer in answers]
        )
        window = getattr(self._model.config, "max_position_embeddings", None)
        longest = len(question.asked) + max(map(len, question.answers))
        if window is not None and longest > window:
            raise ContextTooLongError(
                f"the prompt has {longest} tokens, but the model's context window only {window}"
            )
        return question

    def _tokens(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _score(self, questions: Sequence[_Question]) -> list[list[float]]:
        torch = importlib.import_module("torch")
        with torch.inference_mode():
            rows, size = len(questions), max(question.length for question in questions)
            ids, places = (torch.zeros(rows, size, dtype=torch.long) for _ in range(2))
            seen = torch.zeros(rows, size, size, dtype=torch.bool)
            spots = [
                _laid_out(q, ids[row], places[row], seen[row]) for row, q in enumerate(questions)
            ]
            device, dtype = self._model.device, self._model.dtype
            mask = torch.zeros(rows, 1, size, size, dtype=dtype).masked_fill(
                ~seen[:, None], torch.finfo(dtype).min
            )
            hidden = self._model.model(
                input_ids=ids.to(device),
                position_ids=places.to(device),
                attention_mask=mask.to(device),
                use_cache=False,
            ).last_hidden_state
            return [self._sums(hidden[row], q, spots[row]) for row, q in enumerate(questions)]

    def _sums(
        self, hidden: Any, question: _Question, spots: Sequence[Sequence[int]]
    ) -> list[float]:
        """Returns the answers' log-probabilities; logits are computed only at the positions of
        answers.

        In a small model, computing the logits is most of the work.
        """
        first = len(question.asked) - 1
        logs = self._model.lm_head(hidden[first : question.length]).float().log_softmax(-1)
        return [
            sum(float(logs[spot - first, token]) for spot, token in zip(at, answer, strict=True))
            for at, answer in zip(spots, question.answers, strict=True)
        ]


def _laid_out(question: _Question, ids: Any, places: Any, seen: Any) -> list[list[int]]:
    """Writes a question and its answers into a row; returns the positions that predict each
    answer's tokens.
    """
    torch = importlib.import_module("torch")
    n = len(question.asked)
    ids[:n] = torch.tensor(question.asked)
    places[:n] = torch.arange(n)
    seen[:n, :n] = torch.ones(n, n, dtype=torch.bool).tril()
    spots, at = [], n
    for answer in question.answers:
        end = at + len(answer) - 1
        ids[at:end] = torch.tensor(answer[:-1], dtype=torch.long)
        places[at:end] = torch.arange(n, n + end - at)
        seen[at:end, :n] = True
        seen[at:end, at:end] = torch.ones(end - at, end - at, dtype=torch.bool).tril()
        spots.append([n - 1, *range(at, end)])
        at = end
    seen[at:, 0] = True  # padding must attend to something, or its softmax is undefined
    return spots


def load_chooser(
    model: str,
    adapter: str | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    batch: int = 1,
) -> Chooser:
    """Loads the chooser of a model; callers share it, and the last two stay loaded.

    `model` is `embedded`, a folder, or a name on the Hugging Face Hub. `adapter` is a PEFT folder,
    which is merged into the model.
    Raises UsageError, MissingExtraError, EndpointError.
    """
    with _loading:
        return _loaded(model, adapter, device, dtype, threads, batch)


@lru_cache(2)
def _loaded(
    model: str,
    adapter: str | None,
    device: str | None,
    dtype: str | None,
    threads: int | None,
    batch: int,
) -> Chooser:
    if dtype not in (None, *DTYPES):
        raise UsageError(
            f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}", parameters=("dtype",)
        )
    torch, transformers = libraries("train")
    folder = embedded_model_folder() if model == "embedded" else find_model(model) or model
    if adapter is not None:
        check_adapter(Path(adapter))
    if threads is not None:
        torch.set_num_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        # warnings of peft and transformers about each other's versions
        warnings.simplefilter("ignore", FutureWarning)
        loaded = load(folder, device, dtype, None if adapter is None else Path(adapter))
    if (
        loaded.sees
        or loaded.has_encoder
        or not hasattr(loaded.model, "lm_head")
        or not loaded.tokenizer.chat_template
    ):
        raise UsageError(f"{folder}: no chat model: it needs a language head and a chat template")
    return Chooser(loaded.model, loaded.tokenizer, batch=batch)


class _Choosers:
    """The choosers that stay loaded."""

    def free(self) -> None:
        """Releases them; the next `load_chooser` loads the model again."""
        with _loading:
            _loaded.cache_clear()


_choosers = _Choosers()
register_user(_choosers)


def weights_hash(folder: str | os.PathLike[str]) -> str:
    """Returns `sha256:` and the hash of an adapter's weights and settings, or `missing`."""
    digest = hashlib.sha256()
    files = [file for file in sorted(Path(folder).glob("adapter_*")) if file.is_file()]
    for file in files:
        digest.update(os.fsencode(file.name) + file.read_bytes())
    return f"sha256:{digest.hexdigest()}" if files else "missing"
