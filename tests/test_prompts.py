"""Prompt files: filled once, hashed by content, strict about names."""

import pytest

from prill.errors import UsageError
from prill.prompts import Prompt, content_hash, load_prompt

PROMPT = Prompt("p", "# system\nBe {fair} to {{ name }}.\n# user\n{{ goal }} and {{ name }}\n")


def test_inserted_text_is_never_filled_again() -> None:
    turns = PROMPT.fill({"name": "{{ goal }}", "goal": "# system {braces} \\1"})
    assert turns == {"system": "Be {fair} to {{ goal }}.", "user": "# system {braces} \\1 and {{ goal }}"}


def test_a_missing_and_an_unknown_name_are_errors() -> None:
    with pytest.raises(UsageError, match="no value for goal"):
        PROMPT.fill({"name": "x"})
    with pytest.raises(UsageError, match="unknown name extra"):
        PROMPT.fill({"name": "x", "goal": "y", "extra": "z"})


def test_the_hash_follows_the_text_only() -> None:
    assert Prompt("other name", PROMPT.text).hash == PROMPT.hash
    assert Prompt("p", PROMPT.text + " ").hash != PROMPT.hash
    assert content_hash("ab", "c") != content_hash("a", "bc")


@pytest.mark.parametrize("name", ["web_text", "web_vision", "device_text", "device_vision"])
def test_shipped_prompts_load_and_have_both_turns(name: str) -> None:
    prompt = load_prompt("prill.evaluators", name)
    assert prompt.fill(dict.fromkeys(prompt.slots, "")).keys() == {"system", "user"}


def test_an_unknown_prompt_is_named() -> None:
    with pytest.raises(UsageError, match="no prompt 'nothing'"):
        load_prompt("prill.evaluators", "nothing")
