"""Batch judging: request files for `vllm run-batch`, OpenAI's and Anthropic's batch APIs.

`write` writes the request files, `submit` and `fetch` exchange them with a batch API, and `collect`
makes verdicts. Judges are not aware of batches: they run as usual, with stored answers in place of
an endpoint. Requests without a stored answer are written to the next request files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.batches.folder import BatchFolder
    from prill.batches.jobs import fetch, submit
    from prill.batches.replay import collect, write

__all__ = ["BatchFolder", "collect", "fetch", "submit", "write"]
__getattr__, __dir__ = lazily(__name__)
