"""SQLite connections that nobody closes: Python 3.13 warns of them, and here older versions do.

`warn_of_unclosed` is for this process. As a script it is for another one: it runs commands of
prill, given as JSON on standard input, and prints their exit codes and where the connections were
opened that are open still when Python ends.
"""

from __future__ import annotations

import atexit
import json
import sqlite3
import sys
import traceback
import warnings
from typing import Any

_connect = sqlite3.connect
_made: list[Connection] = []


class Connection(sqlite3.Connection):
    """One that knows where it was opened, and whether it was closed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_open = True
        self.place = "".join(traceback.format_stack(limit=12)[:-2])

    def close(self) -> None:
        super().close()
        self.is_open = False


class _Warning(Connection):
    def __del__(self) -> None:
        if self.is_open:
            warnings.warn(
                f"unclosed database, opened at\n{self.place}",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )


def warn_of_unclosed() -> None:
    """Has connections warn as those of Python 3.13 do: pytest makes the warning a failure of the
    test.
    """
    if sys.version_info < (3, 13):
        sqlite3.connect = lambda *args, **kwargs: _connect(*args, **{"factory": _Warning, **kwargs})  # type: ignore[assignment]


def keeping(*args: Any, **kwargs: Any) -> Connection:
    """A connection that is kept here, so that nothing but `close` closes it."""
    _made.append(_connect(*args, **{**kwargs, "factory": Connection}))
    return _made[-1]


def _tell(codes: list[int]) -> None:
    places = [connection.place for connection in _made if connection.is_open]
    print(json.dumps({"codes": codes, "opened": len(_made), "unclosed": places}))


if __name__ == "__main__":
    codes: list[int] = []
    atexit.register(_tell, codes)  # the first to be registered is the last to be run
    sqlite3.connect = keeping  # type: ignore[assignment]
    from prill.cli import main

    for words in json.load(sys.stdin):
        codes.append(main(words))
