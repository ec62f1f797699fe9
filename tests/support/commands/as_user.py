"""Runs commands as a user who may read everything and write almost nothing, all in one process.
test_unwritable.py starts it.

Arguments: the working directory. Standard input: the commands, as JSON. Standard output: the result
of each.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys

from prill.cli import main


def late(*_: object) -> None:
    raise TimeoutError("the command went on")


def run(words: list[str]) -> tuple[int | str, str]:
    err = io.StringIO()
    signal.alarm(60)
    try:
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            code: int | str = main(words)
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else str(exit.code)
    except BaseException as error:  # noqa: BLE001 - a traceback is what is looked for
        code = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return code, err.getvalue()


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    signal.signal(signal.SIGALRM, late)
    print(json.dumps({name: run(words) for name, words in json.load(sys.stdin).items()}))
