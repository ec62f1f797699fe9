"""Transcripts: the model calls behind every verdict, and their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.io.kinds import transcript_folder
    from prill.models.calls import Call, ImageFile, Transcript, Turn, transcribed
    from prill.models.transcripts.files import TranscriptLog, read_transcript, read_transcripts

__all__ = [
    "Call", "ImageFile", "Transcript", "TranscriptLog", "Turn", "read_transcript",
    "read_transcripts", "transcribed", "transcript_folder",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)
