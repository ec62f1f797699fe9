"""Test doubles that the wheel leaves out: phones, simulators, models that answer by program,
generated conversations.

Whatever starts in the repository's root can import them: pytest, `python -m`, and all else with the
root on PYTHONPATH.
"""

from __future__ import annotations

import os
import sys


def search_path() -> str:
    """What this process imports from, as a PYTHONPATH for the programs that it starts."""
    return os.pathsep.join(
        os.path.abspath(path) for path in sys.path if not path or os.path.exists(path)
    )
