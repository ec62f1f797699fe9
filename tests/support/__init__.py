"""Test doubles that the wheel omits: phones, simulators, programmatic models, generated
conversations.

They can be imported by any program that starts in the repository's root or has it on PYTHONPATH:
pytest, `python -m`, scripts.
"""

from __future__ import annotations

import os
import sys


def search_path() -> str:
    """Returns this process's import path as a PYTHONPATH for child processes."""
    return os.pathsep.join(
        os.path.abspath(path) for path in sys.path if not path or os.path.exists(path)
    )
