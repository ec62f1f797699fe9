"""The flags that help, added to messages of the library, which knows of none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prill.errors import UsageError


@contextmanager
def naming_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """Puts a flag behind the message of a UsageError that ends with its phrase; `flags` maps phrases to flags."""
    try:
        yield
    except UsageError as error:
        flag = next((flag for phrase, flag in flags.items() if str(error).endswith(phrase)), None)
        if flag is None:
            raise
        raise UsageError(f"{error} with {flag}") from None
