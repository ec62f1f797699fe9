"""Logging under `prill.…`; the library prints nothing.

logging.getLogger("prill").setLevel(logging.INFO)  # in a program of yours: also what is for users
"""

from __future__ import annotations

from typing import Final

# For `extra=`: a message below a warning that whoever waits at the terminal should see.
FOR_USERS: Final = {"for_users": True}
