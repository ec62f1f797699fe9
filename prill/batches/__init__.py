"""Batch judging: request files for `vllm run-batch`, OpenAI's and Anthropic's batch APIs.

`write` makes the files, `submit` and `fetch` carry them to a batch API and back, `collect` makes
verdicts. Judges know nothing of it: they are run as ever, with the answers that are there in the
place of an endpoint; what is missing is written down.
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
