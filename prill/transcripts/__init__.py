"""Transcripts: the model calls behind every verdict, and their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.models.calls import Call, ImageFile, Transcript, Turn, transcribed
    from prill.transcripts.files import (
        TranscriptLog,
        read_transcript,
        read_transcripts,
        transcript_folder,
    )

__all__ = [
    "Call",
    "ImageFile",
    "Transcript",
    "TranscriptLog",
    "Turn",
    "read_transcript",
    "read_transcripts",
    "transcribed",
    "transcript_folder",
]
_HOMES = {
    "Call": "prill.models.calls",
    "ImageFile": "prill.models.calls",
    "Transcript": "prill.models.calls",
    "TranscriptLog": "files",
    "Turn": "prill.models.calls",
    "read_transcripts": "files",
    "transcribed": "prill.models.calls",
    "transcript_folder": "files",
    "read_transcript": "files",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
