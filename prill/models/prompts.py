"""Prompts, and the quotation of untrusted text in them.

Prompts are Markdown files next to the code that uses them; verdicts contain the hash of their
content. Untrusted text is stripped of invisible characters and enclosed in markers with a code that
no page can know.
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

# Placeholder for the code in a message; the client draws another code for every run that is judged
# or recorded, so that no page can know it.
NONCE = "\ue000"
# The code in worked examples, which are the same in all calls of a run.
EXAMPLE_CODE = "example"
_CODE_KEY = "PRILL_CODE_KEY"
# As many codes as 32 bits can represent. Letters are used because models read two or three of them
# as one token, but digits one by one.
_CODE_LETTERS = 7
_CODES = len(ascii_lowercase) ** _CODE_LETTERS
_SLOT = re.compile(r"\{\{ *([a-z_]+) *\}\}")
_PLACE = re.compile(r"\{\{[^{}\n]{0,60}\}{0,2}")  # a placeholder, also a malformed one
MAX_PROMPT = 1 << 20  # bytes of a prompt file: more than any model can read
_TURN = re.compile(r"^# (system|user)\s*$", re.MULTILINE)
# Unicode's Default_Ignorable_Code_Point: letters and marks that are not rendered.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# All characters outside printable ASCII; only these must be checked one by one.
_UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]+")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt file with placeholders `{{ name }}`, divided into turns by `# system` and `# user`
    headings.
    """

    name: str
    text: str

    @property
    def hash(self) -> str:
        """Returns `sha256:` and the hash of the file's text."""
        return _compute_hash(self.text)

    @property
    def slots(self) -> frozenset[str]:
        """Returns the names of the placeholders."""
        return _find_slots(self.text)

    @property
    def roles(self) -> tuple[str, ...]:
        """Returns the authors of its turns."""
        return tuple(role for role, _ in _split_turns(self.text))

    def fill(self, values: Mapping[str, str]) -> dict[str, str]:
        """Returns the turns (role -> text) with all placeholders filled.

        Inserted text is not searched for placeholders, so braces in it are safe. Raises UsageError
        for an unknown or a missing value.
        """
        if missing := self.slots - values.keys():
            raise UsageError(f"prompt {self.name}: no value for {', '.join(sorted(missing))}")
        if unknown := values.keys() - self.slots:
            raise UsageError(f"prompt {self.name}: unknown name {', '.join(sorted(unknown))}")
        return {
            role: _SLOT.sub(lambda slot: values[slot[1]], text).strip()
            for role, text in _split_turns(self.text)
        }


# The parsed parts of a prompt are cached, because thousands of calls use the same prompt.
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
    """Loads the prompt `prompts/<name>.md` of a package.

    Example: `load_prompt("prill.evaluators.judges", "web_text")`.
    """
    file = resource_files(package) / "prompts" / f"{name}.md"
    if not file.is_file():
        raise UsageError(f"{package} has no prompt {name!r}")
    return Prompt(name, file.read_text(encoding="utf-8"))


def prompt_set(
    shipped: Mapping[str, Prompt], main: Sequence[str], files: str | Mapping[str, str] | None = None
) -> dict[str, Prompt]:
    """Returns prompts by name, some of them replaced by the user's files.

    `files` is a path that replaces the `main` prompts, or a table of names and paths. Raises
    UsageError for a file whose placeholders or turns differ from those of the prompt that it
    replaces.
    """
    own = dict.fromkeys(main, files) if isinstance(files, str) else dict(files or {})
    names = tuple(shipped)
    if unknown := own.keys() - set(names):
        raise UsageError(
            f"unknown prompt {', '.join(sorted(unknown))}; expected one of {', '.join(names)}"
        )
    return {
        name: _own_prompt(
            own[name],
            shipped[name],
            # A file for several platforms may omit placeholders that only one platform has, and use
            # placeholders of any.
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
    prompt = Prompt(shipped.name, read_prompt(path))
    slots = ", ".join(f"{{{{ {slot} }}}}" for slot in sorted(needed))
    for found in _PLACE.finditer(prompt.text):
        if not _SLOT.fullmatch(found[0]):  # it would be sent to the model unchanged
            line = prompt.text.count("\n", 0, found.start()) + 1
            raise UsageError(
                f"{path}:{line}: {found[0]!r} is not a placeholder; a prompt for {shipped.name} "
                f"has {slots}"
            )
    if missing := needed - prompt.slots:
        raise UsageError(
            f"{path}: placeholder {', '.join(sorted(missing))} is missing; a prompt for "
            f"{shipped.name} has {slots}"
        )
    if unknown := prompt.slots - allowed:
        raise UsageError(
            f"{path}: unknown name {', '.join(sorted(unknown))}; a prompt for {shipped.name} "
            f"has {slots}"
        )
    if _TURN.findall(prompt.text) != _TURN.findall(shipped.text):
        raise UsageError(
            f"{path}: a prompt for {shipped.name} needs the headings `# system` and `# "
            "user`, in this order"
        )
    return prompt


def read_prompt(path: str) -> str:
    """Reads a prompt file of the user. Raises UsageError."""
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
        raise UsageError(f"{path}: a prompt file may have at most {MAX_PROMPT} bytes")
    return text.replace("\r\n", "\n").replace("\r", "\n")


_secret: ContextVar[str | None] = ContextVar("prill_code_secret", default=None)
_shared: ContextVar[list[str] | None] = ContextVar("prill_shared_code", default=None)


@contextmanager
def same_codes(secret: str) -> Iterator[None]:
    """Derives codes from the secret inside the block, so that equal calls have equal codes."""
    token = _secret.set(secret)
    try:
        yield
    finally:
        _secret.reset(token)


@contextmanager
def shared_code(held: list[str]) -> Iterator[None]:
    """Gives all calls inside blocks with the same list one code, so that servers reuse the prefix
    that the calls have in common. The list holds the code, and is empty at first.

    A code that a call's texts contain, because an agent wrote it down, is replaced by another.
    """
    token = _shared.set(held)
    try:
        yield
    finally:
        _shared.reset(token)


@contextmanager
def code_of_run() -> Iterator[None]:
    """Gives all calls inside the block one code; those of a judge about one run.

    Codes that are derived from a secret stay by call: equal calls must be equal requests.
    """
    if _key():
        yield
        return
    with shared_code([]):
        yield


def call_code(texts: Iterable[str]) -> str:
    """Returns the code that replaces `NONCE` in one call's texts, within `shared_code` in those of
    several calls.
    """
    held = _shared.get()
    if held is None:
        return _draw_code(texts)
    texts = list(texts)
    if not held or any(held[0] in text for text in texts):
        held[:] = [_draw_code(texts)]
    return held[0]


def _draw_code(texts: Iterable[str]) -> str:
    """Returns a new code; it is random, so runs differ slightly.

    If the environment variable PRILL_CODE_KEY is set, the code is derived from that secret and the
    texts: equal calls have equal codes, and still no page can know them. `same_codes` does the same
    with its own secret.
    """
    if not (key := _key()):
        return _letters(secrets.randbelow(_CODES))
    keyed = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    data = "\0".join(texts).encode("utf-8", "surrogatepass")
    return _letters(
        int.from_bytes(hashlib.blake2b(data, digest_size=16, key=keyed).digest()) % _CODES
    )


def _key() -> str | None:
    return _secret.get() or os.environ.get(_CODE_KEY)


def _letters(number: int) -> str:
    letters = []
    for _ in range(_CODE_LETTERS):
        number, letter = divmod(number, len(ascii_lowercase))
        letters.append(ascii_lowercase[letter])
    return "".join(letters)


def content_hash(*texts: str) -> str:
    """Returns `sha256:` and the hash of the texts and their lengths, so that no two lists
    collide.
    """
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return f"sha256:{digest.hexdigest()}"


def quoted(name: str, text: str) -> str:
    """Returns the text between `[name code]` and `[/name code]`, without control and invisible
    characters.

    The model's client draws the code (`call_code`), so no page can know it. A closing marker inside
    the text is also escaped.
    """
    text = clean(text).strip().replace(f"[/{name}", f"[ /{name}")
    return f"[{name} {NONCE}]\n{text}\n[/{name} {NONCE}]"


def clean(text: str) -> str:
    """Returns the text without control characters (except line breaks and tabs) and invisible
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
    """Shortens text to about `limit` characters by removing its middle, with a note in its
    place.
    """
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return (
        f"{text[:head]} [… {len(text) - limit} characters left out …] "
        f"{text[len(text) - (limit - head) :]}"
    )


def estimate_tokens(text: str) -> int:
    """Returns a rough token count, four characters per token, for plans and endpoints without
    counts.
    """
    return (len(text) + 3) // 4
