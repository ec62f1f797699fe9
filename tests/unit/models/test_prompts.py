"""Prompt files: filled once, hashed by content, strict about names."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prill.errors import UsageError
from prill.models.prompts import (
    MAX_PROMPT,
    Prompt,
    call_code,
    content_hash,
    load_prompt,
    prompt_set,
    shared_code,
)

PROMPT = Prompt("p", "# system\nBe {fair} to {{ name }}.\n# user\n{{ goal }} and {{ name }}\n")


def test_hash_follows_the_text_only() -> None:
    assert Prompt("other name", PROMPT.text).hash == PROMPT.hash
    assert Prompt("p", PROMPT.text + " ").hash != PROMPT.hash
    assert content_hash("ab", "c") != content_hash("a", "bc")


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


def own(path: Path, data: bytes) -> Prompt:
    path.write_bytes(data)
    return prompt_set({"web_text": WEB_TEXT}, ["web_text"], str(path))["web_text"]


WEB_TEXT = load_prompt("prill.evaluators.judges", "web_text")
SHIPPED = WEB_TEXT.text


@pytest.mark.parametrize(
    "trick",
    [
        "{{ goal.__class__ }}", "{{goal!r:>999999999}}", "{{ goal:x }}", "{{ Goal }}", "{{ 0 }}", "{{}}",  # noqa: E501
        "{{ goal | upper }}", "{{ goal }",
        "{{ goal", "{{% include x %}}", "{{ goal[0] }}", "{{ __globals__ }}", "{{ 7*7 }}", "{{ ｇoal }}", "{{\tgoal }}",  # noqa: E501
    ],
)  # fmt: skip
def test_a_place_that_is_none_is_told(tmp_path: Path, trick: str) -> None:
    """It would be shown to the model as it is, instead of the goal that was meant."""
    line = SHIPPED.count("\n") + 2
    with pytest.raises(UsageError, match="web_text has") as told:
        own(tmp_path / "p.md", f"{SHIPPED}\n{trick}\n".encode())
    assert f"p.md:{line}: {trick!r}" in str(told.value) or "unknown name" in str(told.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff" + SHIPPED.encode(), "not UTF-8: invalid start byte at byte 0"),
        (SHIPPED.encode("utf-16"), "not UTF-8"),
        (SHIPPED.encode() + b" " * MAX_PROMPT, f"at most {MAX_PROMPT} bytes"),
        (b"", "is missing"),
        (b"# user\n" + SHIPPED.replace("# system\n", "").encode(), "needs the headings"),
    ],
)
def test_a_file_that_is_no_prompt_is_told(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(UsageError, match=why) as told:
        own(tmp_path / "p.md", data)
    assert str(told.value).startswith(f"{tmp_path / 'p.md'}:")


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
def test_an_editor_changes_no_prompt(tmp_path: Path, mark: bytes) -> None:
    """A byte order mark and line ends of Windows: the same prompt, with the same hash."""
    data = mark + SHIPPED.replace("\n", "\r\n").encode()
    assert own(tmp_path / "p.md", data).hash == content_hash(SHIPPED)


PIECES = st.lists(
    st.sampled_from(
        [
            "{",
            "}",
            "{{ goal }}",
            "{{ name }}",
            "{0}",
            "{x.__class__}",
            "{!r:>9}",
            "\\1",
            "%s",
            "$a",
            "# user\n",
            "<state>",
        ]
    )
)


@given(st.dictionaries(st.sampled_from(["name", "goal"]), PIECES.map("".join), min_size=2))
def test_no_value_is_formatted_again(values: dict[str, str]) -> None:
    prompt = Prompt("p", "# system\nA {{ name }} B\n# user\nC {{ goal }} D {{ name }} E")
    name, goal = values["name"], values["goal"]
    assert prompt.fill(values) == {"system": f"A {name} B", "user": f"C {goal} D {name} E"}


def test_calls_share_a_code_until_a_text_contains_it() -> None:
    held: list[str] = []
    with shared_code(held):
        first, second = call_code(["a"]), call_code(["b"])
        leaked = call_code(["a", f"the agent typed {first}"])
        assert first == second != leaked == call_code(["c"])
    assert held == [leaked]
    with shared_code([]):
        assert call_code(["a"]) not in (first, leaked)
