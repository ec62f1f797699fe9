"""Parses a chat model's answer about candidates: the choices it names, the operation and the value.

The prompt shows `Answer: C.`, `Action: SELECT`, `Value: Queen`. Chat models also write this in
bold, as JSON, in a sentence, in another language or after a reason, and continue with an example of
their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from prill.models.replies import excerpt
from prill.papers.replies import (
    UnreadableReplyError,
    asserted_text,
    json_values,
    lower_keys,
    plain_line,
    without_fences,
)

_LABELS = "Answer|Choice|Element|Antwort|Respuesta|Réponse|Risposta|Resposta|Ответ|答案|回答|选择|答え|정답"  # noqa: E501
_NAMED = re.compile(
    rf"(?:^|(?<=[\s.,;!?]))(?:(?:Final|My|The|Correct) )?(?:{_LABELS})[ \t]*(?:is[ \t]*)?[:：=]"
    rf"[ \t]*\n?(?!(?:{_LABELS})[ \t]*[:：])(.+?)[ \t]*(?=$|[ \t]Action: )",
    re.MULTILINE | re.IGNORECASE,
)
_IN_WORDS = re.compile(
    r"\b(?:[Aa]nswer|[Cc]hoice|[Ll]etter|[Oo]ption|[Cc]hoose|[Ss]elect|[Pp]ick)\b"
    r"(?: (?:is|would be|should be|letter|option|choice|element|answer))*[ :]*[\"'(\[]?([A-Z])[\"')\]]?"  # noqa: E501
    r"(?=[.,;:!]|\s*$|\s+(?:since|because|as|for|with|which|and)\b)",
    re.MULTILINE,
)
_ALONE = re.compile(r"[\"'(\[]?[A-Z][\"')\].:]+(?:\s.*)?|[A-Z]|None\W*")
_LETTER = re.compile(
    r"(?:(?:option|choice|letter) )?\W{0,2}([A-Za-z])(?![A-Za-z0-9])", re.IGNORECASE
)
_NONE = re.compile(
    r"\W*(?:none(?: of (?:the above|them|these))?|null|n/?a|nothing|keine?s?(?: davon)?|ninguno|aucun|无|以上都不是)?\W*",  # noqa: E501
    re.IGNORECASE,
)
_OPERATION = re.compile(r"\b(CLICK|SELECT|TYPE)\b", re.IGNORECASE)
_ACTION = re.compile(
    r"(?:^|[ \t])(?:Action|Operation|Aktion|Acción|Действие|动作|操作)[ \t]*[:：]\W*(CLICK|SELECT|TYPE)\b",  # noqa: E501
    re.MULTILINE | re.IGNORECASE,
)
_VALUE = re.compile(
    r"(?:^|[ \t])(?:Value|Wert|Valor|Valeur|Значение|值)[ \t]*[:：][ \t]*([^\n]*)",
    re.MULTILINE | re.IGNORECASE,
)
_TURN = re.compile(
    r"^[^\w\n]*(?:Task|Human|User|Observation|Next(?: example)?|Example \d+)[^\w\n]*:|^'{3}|^###\s*(?:Human|Assistant)",  # noqa: E501
    re.MULTILINE | re.IGNORECASE,
)
_KEYS = ("answer", "choice", "letter", "element", "option", "selection", "element_id")
_INNER = ("arguments", "input", "parameters")


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """A parsed answer: the choices in the model's words, the operation in capitals, and the value.
    Missing parts are empty.
    """

    answers: tuple[str, ...]
    operation: str = ""
    value: str = ""


def read_chat(text: str) -> ChatAnswer:
    """Parses an answer written as JSON or as labelled lines. Without `answers` it names no
    choice.
    """
    for value in json_values(text):
        table = _flat(value)
        key = next((key for key in _KEYS if key in table), None)
        if key is not None:
            named = "None" if table[key] is None else str(table[key])
            operation = _OPERATION.search(str(table.get("action") or table.get("operation") or ""))
            return ChatAnswer(
                (named,),
                *_said(operation, "" if table.get("value") is None else str(table["value"])),
            )
    lines = [
        line for line in map(plain_line, without_fences(_TURN.split(text)[0]).splitlines()) if line
    ]
    flat = "\n".join(lines)
    answers = [found[1].strip() for found in _NAMED.finditer(flat)]
    answers = answers or [found[1] for found in _IN_WORDS.finditer(asserted_text(flat))]
    answers = answers or [line for line in lines if _ALONE.fullmatch(line)]
    operation, typed = _ACTION.search(flat), _VALUE.search(flat)
    return ChatAnswer(
        tuple(answers), *_said(operation, typed[1] if typed else _behind(flat, operation))
    )


def letter_in(said: str) -> str:
    """Returns the letter of a choice, in upper case. Raises UnreadableReplyError."""
    found = _LETTER.match(said)
    if found is None:
        raise UnreadableReplyError(f"{excerpt(said)} is no letter of a choice")
    return found[1].upper()


def says_none(said: str) -> bool:
    """Returns whether the text means "none of the choices"."""
    return _NONE.fullmatch(said) is not None


def _flat(value: Any) -> dict[str, Any]:
    """Returns the keys of an object in lower case, merged with those of a tool call's arguments."""
    table = lower_keys(value)
    inner = (table[key] for key in _INNER if isinstance(table.get(key), dict))
    return table | lower_keys(next(inner, {}))


def _said(operation: re.Match[str] | None, value: str) -> tuple[str, str]:
    """Returns the operation in capitals and the value without enclosing quotes. A click with `N/A`
    has no value.
    """
    name, value = operation[1].upper() if operation else "", value.strip().strip("`").strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return name, "" if name == "CLICK" and says_none(value) else value


def _behind(text: str, operation: re.Match[str] | None) -> str:
    """Returns the quoted or bracketed value after the operation, for answers without a separate
    value line.
    """
    rest = "" if operation is None else text[operation.end() :].partition("\n")[0]
    found = re.match(r"\W*?(?:\"([^\"]+)\"|\[([^\]]+)\])", rest)
    return (found[1] or found[2]) if found else ""
