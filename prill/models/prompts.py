"""Prompts: Markdown files beside the code that uses them, whose content hash verdicts carry; and
untrusted text inside them, cleaned of what nobody can see and set between marks that no page can
know.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as resource_files
from pathlib import Path
from string import ascii_lowercase

from prill.errors import UsageError

# Stands for a code in the text of a message; the client draws another code for every call, so that
# no page can know it.
NONCE = "\ue000"
_CODE_KEY = "PRILL_CODE_KEY"
# As many codes as 32 bits have. Letters, of which models read two or three as one token, and digits
# one by one.
_CODE_LETTERS = 7
_CODES = len(ascii_lowercase) ** _CODE_LETTERS
_SLOT = re.compile(r"\{\{ *([a-z_]+) *\}\}")
_PLACE = re.compile(r"\{\{[^{}\n]{0,60}\}{0,2}")  # what is or was meant as a place to fill
MAX_PROMPT = 1 << 20  # bytes of a prompt file: more than any model reads
_TURN = re.compile(r"^# (system|user)\s*$", re.MULTILINE)
# Characters that no font draws, though Unicode calls them letters or marks: its
# Default_Ignorable_Code_Point.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# All but what nearly every page is made of: only these have to be looked at one by one.
_UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]+")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt file. `{{ name }}` marks a place to fill; a `# system` and a `# user` heading divide
    it into turns.
    """

    name: str
    text: str

    @property
    def hash(self) -> str:
        """`sha256:` and the hash of the file's text."""
        return _compute_hash(self.text)

    @property
    def slots(self) -> frozenset[str]:
        """The names that must be filled."""
        return _find_slots(self.text)

    def fill(self, values: Mapping[str, str]) -> dict[str, str]:
        """The turns (role -> text) with every place filled once: inserted text is never searched
        again, braces are safe.

        Raises UsageError for a value that the prompt does not name, and for a name without a value.
        """
        if missing := self.slots - values.keys():
            raise UsageError(f"prompt {self.name}: no value for {', '.join(sorted(missing))}")
        if unknown := values.keys() - self.slots:
            raise UsageError(f"prompt {self.name}: unknown name {', '.join(sorted(unknown))}")
        return {
            role: _SLOT.sub(lambda slot: values[slot[1]], text).strip()
            for role, text in _split_turns(self.text)
        }


# What is found in a prompt's text is kept: thousands of calls have the same one.
@cache
def _compute_hash(text: str) -> str:
    return content_hash(text)


@cache
def _find_slots(text: str) -> frozenset[str]:
    return frozenset(_SLOT.findall(text))


@cache
def _split_turns(text: str) -> list[tuple[str, str]]:
    pieces = _TURN.split(text)
    return (
        [("user", text)] if len(pieces) == 1 else list(zip(pieces[1::2], pieces[2::2], strict=True))
    )


@cache
def load_prompt(package: str, name: str) -> Prompt:
    """The prompt `prompts/<name>.md` of a package, e.g.
    `load_prompt("prill.evaluators", "web_text")`.
    """
    file = resource_files(package) / "prompts" / f"{name}.md"
    if not file.is_file():
        raise UsageError(f"{package} has no prompt {name!r}")
    return Prompt(name, file.read_text(encoding="utf-8"))


def prompt_set(
    package: str,
    names: Sequence[str],
    main: Sequence[str],
    files: str | Mapping[str, str] | None = None,
) -> dict[str, Prompt]:
    """The prompts of a package by name; the user's files replace some.

    `files` is a path that takes the places of the `main` prompts, or a table of names and paths.
    Raises UsageError for a file whose places to fill, or turns, are not those of the prompt that it
    replaces.
    """
    own = dict.fromkeys(main, files) if isinstance(files, str) else dict(files or {})
    if unknown := own.keys() - set(names):
        raise UsageError(
            f"there is no prompt {', '.join(sorted(unknown))}; there are: {', '.join(names)}"
        )
    shipped = {name: load_prompt(package, name) for name in names}
    return {
        name: _own_prompt(
            own[name],
            shipped[name],
            # One file for several platforms may leave out what only one of them has, and name what
            # any of them has.
            frozenset.intersection(
                *(shipped[other].slots for other in names if own.get(other) == own[name])
            ),
            frozenset.union(
                *(shipped[other].slots for other in (name, *main) if name in (other, *main))
            ),
        )
        if name in own
        else shipped[name]
        for name in names
    }


def _own_prompt(
    path: str, shipped: Prompt, needed: frozenset[str], allowed: frozenset[str]
) -> Prompt:
    prompt = Prompt(shipped.name, _own_text(path))
    slots = ", ".join(f"{{{{ {slot} }}}}" for slot in sorted(needed))
    for found in _PLACE.finditer(prompt.text):
        if not _SLOT.fullmatch(found[0]):  # it would be shown to the model as it is
            line = prompt.text.count("\n", 0, found.start()) + 1
            raise UsageError(
                f"{path}:{line}: {found[0]!r} is no place to fill; a prompt for {shipped.name} "
                f"names {slots}"
            )
    if missing := needed - prompt.slots:
        raise UsageError(
            f"{path}: has no place for {', '.join(sorted(missing))}; a prompt for {shipped.name} "
            f"names {slots}"
        )
    if unknown := prompt.slots - allowed:
        raise UsageError(
            f"{path}: unknown name {', '.join(sorted(unknown))}; a prompt for {shipped.name} "
            f"names {slots}"
        )
    if _TURN.findall(prompt.text) != _TURN.findall(shipped.text):
        raise UsageError(
            f"{path}: a prompt for {shipped.name} has the headings `# system` and `# user`, in "
            "this order"
        )
    return prompt


def _own_text(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_PROMPT + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
    except ValueError as error:  # a NUL in the path
        raise UsageError(f"{path!r}: {error}") from None
    if len(data) > MAX_PROMPT:
        raise UsageError(f"{path}: a prompt file has at most {MAX_PROMPT} bytes")
    return text.replace("\r\n", "\n").replace("\r", "\n")


_secret: ContextVar[str | None] = ContextVar("prill_code_secret", default=None)


@contextmanager
def same_codes(secret: str) -> Iterator[None]:
    """Inside it, the same call has the same code, which follows from the secret."""
    token = _secret.set(secret)
    try:
        yield
    finally:
        _secret.reset(token)


def call_code(texts: Iterable[str]) -> str:
    """The code that takes the places of `NONCE` in these texts of one call: random, so two runs
    differ a little.

    With a secret in the environment variable PRILL_CODE_KEY it follows from the secret and the
    texts: the same call has the same code, and still no page can know it. `same_codes` does that
    with a secret of its own.
    """
    key = _secret.get() or os.environ.get(_CODE_KEY)
    if not key:
        return _letters(secrets.randbelow(_CODES))
    keyed = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    data = "\0".join(texts).encode("utf-8", "surrogatepass")
    return _letters(
        int.from_bytes(hashlib.blake2b(data, digest_size=16, key=keyed).digest()) % _CODES
    )


def _letters(number: int) -> str:
    letters = []
    for _ in range(_CODE_LETTERS):
        number, letter = divmod(number, len(ascii_lowercase))
        letters.append(ascii_lowercase[letter])
    return "".join(letters)


def content_hash(*texts: str) -> str:
    """`sha256:` and the hash of the texts, each with its length so that no two lists collide."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return f"sha256:{digest.hexdigest()}"


def quoted(name: str, text: str) -> str:
    """The text between `[name code]` and `[/name code]`, without control and invisible characters.

    The model's client draws a new code for every call, so no page can know it; an ending that
    the text brings along is spoilt all the same.
    """
    text = clean(text).strip().replace(f"[/{name}", f"[ /{name}")
    return f"[{name} {NONCE}]\n{text}\n[/{name} {NONCE}]"


def clean(text: str) -> str:
    """The text without control characters (line breaks and tabs stay) and invisible format
    characters.
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNUSUAL.sub(_visible, text)


def _visible(found: re.Match[str]) -> str:
    visible = _INVISIBLE.sub("", found[0])
    return "".join(
        c for c in visible if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn")
    )


def shorten(text: str, limit: int) -> str:
    """At most about `limit` characters: the beginning and the end, with a mark where something was
    left out.
    """
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return (
        f"{text[:head]} [… {len(text) - limit} characters left out …] "
        f"{text[len(text) - (limit - head) :]}"
    )


def estimate_tokens(text: str) -> int:
    """A rough count, four characters a token, for plans and for endpoints that do not count."""
    return (len(text) + 3) // 4
