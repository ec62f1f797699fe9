"""Reads verdict files, and tells from the ids in them which shards of a run are missing."""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from math import comb, log2

from prill.io.shards import id_digest
from prill.io.store import read_verdicts
from prill.types import Verdict

_log = logging.getLogger("prill.io.verdict_files")
_Path = str | os.PathLike[str]
_MAX_SHARDS = 256
_CERTAIN = -20.0  # log2 of the chance that complete verdicts look as if shards were missing


def read_verdict_files(paths: _Path | Sequence[_Path]) -> Iterator[Verdict]:
    """Reads the verdicts of some files, such as the shards of one run, in order.

    If shards of the run are missing, one warning names them after the last verdict.

    Args:
        paths: A verdict file, or several.

    Raises:
        UsageError: A file cannot be read, or holds something else.
        InputError: A line is broken.
    """
    files = [paths] if isinstance(paths, str | os.PathLike) else paths
    digests = array("Q")
    for path in files:
        for verdict in read_verdicts(path):
            digests.append(id_digest(verdict.id))
            yield verdict
    warn_missing(files, digests)


def warn_missing(files: Iterable[_Path], digests: Sequence[int]) -> None:
    """Warns if the verdicts in files lack shards of the run.

    Args:
        files: The verdict files.
        digests: The digests of the ids in them, from `id_digest`.
    """
    if missing := missing_shards(digests):
        _log.warning(
            "%s: shard%s %s missing: these verdicts are on a part of the runs",
            ", ".join(str(path) for path in files),
            "s" * (len(missing) > 1),
            ", ".join(missing) + (" are" if len(missing) > 1 else " is"),
        )


def missing_shards(digests: Sequence[int]) -> list[str]:
    """Returns the shards of a run that have none of some ids, such as `2/4`.

    The digest of an id says in which shard it is (see `Shard`). Ids of whole runs are spread over
    all shards of any division; if they leave some shards of a division empty, and chance does not
    explain it, those shards are missing.

    Args:
        digests: The ids' digests, from `id_digest`.
    """
    ids = set(digests)
    most, count, there = _CERTAIN, 1, {0}
    for divided in range(2, _MAX_SHARDS + 1):
        found = set[int]()
        for digest in ids:
            found.add(digest % divided)
            if len(found) == divided:
                break
        else:
            # at most: the number of ways to choose the shards, times the chance to hit no other
            share = len(found) / divided
            chance = log2(comb(divided, len(found))) + len(ids) * log2(share) if ids else 0.0
            if chance < most:
                most, count, there = chance, divided, found
    return [f"{number + 1}/{count}" for number in range(count) if number not in there]
