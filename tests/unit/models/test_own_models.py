"""Models of one's own by name: which names are such, and what can be made of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import prill
from prill.errors import UsageError
from prill.models.client import OpenAIModel
from prill.models.registry import model_maker, model_options
from prill.protocols import Message

OWN = """
from prill.protocols import Reply
from prill.types import Usage

class Says:
    def __init__(self, word: str = "yes", times: int = 1) -> None:
        self.name, self.text = "says", word * times

    async def complete(self, messages, *, form=None, max_tokens=1024, prompt=""):
        return Reply(self.text, Usage(calls=1), {})

READY = Says("ready")
NOTHING = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    return path


def _said(model: object) -> str:
    return asyncio.run(model.complete([Message("user", ("hi",))])).text  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name",
    [
        "deepseek/r1:free",
        "llama3.1:8b",
        "mistral:latest",
        "openai:o1",
        "hf.co/some/model:Q4",
        "no.such.package:Object",
        "a.b:",
    ],
)
def test_endpoint_names_may_hold_colons(name: str) -> None:
    assert model_maker(name) is OpenAIModel


def test_own_model_from_file_with_options(file: Path) -> None:
    assert _said(prill.model(f"{file}:Says", word="no", times=2)) == "nono"
    assert model_options(f"{file}:Says") == ("word", "times")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("Says", {"wrod": "no"}, "did you mean 'word'"),
        ("Sais", {}, "did you mean 'Says'"),
        ("NOTHING", {}, "did not return a language model"),
    ],
)
def test_own_model_that_is_none_is_told(
    file: Path, name: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        prill.model(f"{file}:{name}", **options)
