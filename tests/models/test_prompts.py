"""Prompt files: filled once, hashed by content, strict about names."""

import re

import pytest

from prill.errors import UsageError
from prill.models.prompts import Prompt, call_code, content_hash, load_prompt

PROMPT = Prompt("p", "# system\nBe {fair} to {{ name }}.\n# user\n{{ goal }} and {{ name }}\n")


def test_inserted_text_is_not_refilled() -> None:
    turns = PROMPT.fill({"name": "{{ goal }}", "goal": "# system {braces} \\1"})
    assert turns == {"system": "Be {fair} to {{ goal }}.", "user": "# system {braces} \\1 and {{ goal }}"}


def test_missing_and_unknown_names_fail() -> None:
    with pytest.raises(UsageError, match="no value for goal"):
        PROMPT.fill({"name": "x"})
    with pytest.raises(UsageError, match="unknown name extra"):
        PROMPT.fill({"name": "x", "goal": "y", "extra": "z"})


def test_hash_follows_the_text_only() -> None:
    assert Prompt("other name", PROMPT.text).hash == PROMPT.hash
    assert Prompt("p", PROMPT.text + " ").hash != PROMPT.hash
    assert content_hash("ab", "c") != content_hash("a", "bc")


@pytest.mark.parametrize("name", ["web_text", "web_vision", "device_text", "device_vision"])
def test_shipped_prompts_have_both_turns(name: str) -> None:
    prompt = load_prompt("prill.evaluators", name)
    assert prompt.fill(dict.fromkeys(prompt.slots, "")).keys() == {"system", "user"}


def test_unknown_prompt_is_named() -> None:
    with pytest.raises(UsageError, match="no prompt 'nothing'"):
        load_prompt("prill.evaluators", "nothing")


def test_call_code_is_random_without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRILL_CODE_KEY", raising=False)
    assert len({call_code(["a"]) for _ in range(10)}) == 10
    monkeypatch.setenv("PRILL_CODE_KEY", "mine")
    assert call_code(["a", "b"]) == call_code(["a", "b"])
    codes = [call_code(["a", "b"]), call_code(["ab"]), call_code(["a", "c"])]
    monkeypatch.setenv("PRILL_CODE_KEY", "yours")
    codes.append(call_code(["a", "b"]))
    assert len(set(codes)) == 4
    assert all(re.fullmatch("[a-z]{7}", code) for code in codes)
