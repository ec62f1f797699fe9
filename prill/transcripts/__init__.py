"""What models were asked and answered: the calls behind every verdict, noted as they are made, and the files that keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.transcripts.calls import Call, ImageFile, Transcript, Turn, transcribed
    from prill.transcripts.files import TranscriptLog, read_transcripts, transcript_folder, transcript_of

__all__ = [
    "Call",
    "ImageFile",
    "Transcript",
    "TranscriptLog",
    "Turn",
    "read_transcripts",
    "transcribed",
    "transcript_folder",
    "transcript_of",
]
_HOMES = {
    "Call": "calls",
    "ImageFile": "calls",
    "Transcript": "calls",
    "TranscriptLog": "files",
    "Turn": "calls",
    "read_transcripts": "files",
    "transcribed": "calls",
    "transcript_folder": "files",
    "transcript_of": "files",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
