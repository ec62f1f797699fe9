"""How the library speaks: by `logging`, under `prill.…`; it prints nothing. The command shows warnings, and what is for users.

logging.getLogger("prill").setLevel(logging.INFO)  # in a program of yours: also what is for users
"""

from __future__ import annotations

from typing import Final

# For `extra=`: a message below a warning that whoever waits at the terminal should see.
FOR_USERS: Final = {"for_users": True}
