"""Detects unclosed SQLite connections. Python 3.13 warns about them; this module does so for older
versions.

`warn_of_unclosed` applies to this process. As a script, the module runs commands of prill, given as
JSON on standard input. It prints their exit codes, and where the connections were opened that are
still open when Python ends.
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
    """A connection that records where it was opened and whether it was closed."""

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
    """Makes unclosed connections warn as in Python 3.13. pytest turns the warning into a test
    failure.
    """
    if sys.version_info < (3, 13):
        sqlite3.connect = lambda *args, **kwargs: _connect(*args, **{"factory": _Warning, **kwargs})


def keeping(*args: Any, **kwargs: Any) -> Connection:
    """Returns a connection that is referenced here, so that only `close` closes it."""
    _made.append(_connect(*args, **{**kwargs, "factory": Connection}))
    return _made[-1]


def _tell(codes: list[int]) -> None:
    places = [connection.place for connection in _made if connection.is_open]
    print(json.dumps({"codes": codes, "opened": len(_made), "unclosed": places}))


if __name__ == "__main__":
    codes: list[int] = []
    atexit.register(_tell, codes)  # the first registered function runs last
    sqlite3.connect = keeping  # type: ignore[assignment]
    from prill.cli import main

    for words in json.load(sys.stdin):
        codes.append(main(words))
