"""Parts of chat logs that several tests share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="  # noqa: E501
CALL = {
    "id": "a",
    "type": "function",
    "function": {"name": "goto", "arguments": '{"url": "http://shop"}'},
}


def write(path: Path, *rows: dict[str, Any] | str) -> Path:
    """Writes rows as JSON Lines."""
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    return path
