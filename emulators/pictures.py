"""Screenshots kept as files, named by content, so that a state seen twice is one file."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from pathlib import Path

from prill.errors import EnvironmentFailure, UsageError


def keep_screenshot(png: bytes, folder: Path) -> str:
    """The path of the picture as a lossless WebP file in the folder; made when it is not there. For `asyncio.to_thread`.

    Raises EnvironmentFailure for a picture that is damaged, UsageError when the file cannot be written.
    """
    path = folder / f"{hashlib.sha256(png).hexdigest()[:16]}.webp"
    if not path.exists():
        from PIL import Image

        packed = io.BytesIO()
        # Effort 0: a tenth of the time of the default, for files a fifth larger, and smaller than the PNG anyway.
        try:
            Image.open(io.BytesIO(png)).convert("RGB").save(packed, "WEBP", lossless=True, quality=0, method=0)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise EnvironmentFailure(f"the screenshot is damaged ({len(png)} bytes)") from error
        _write(path, packed.getvalue())
    return str(path)


def _write(path: Path, data: bytes) -> None:
    """All or nothing: a run that is killed here leaves no torn picture behind that would be taken for a whole one.

    Two phones may show the same at the same moment, so each writes a file of its own first.
    """
    part = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
