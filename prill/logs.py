"""Logging under `prill.…`; the library prints nothing.

logging.getLogger("prill").setLevel(logging.INFO)  # also show messages for users
"""

from __future__ import annotations

from typing import Final

# Pass as `extra=`: marks a message below warning level that should be shown in the terminal.
FOR_USERS: Final = {"for_users": True}
