"""What the web environments of `prill rollout` share: how pages are shown, and tasks that are named."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prill.commands.rollout.cases import numbers
from prill.errors import UsageError


def add_page_options(group: argparse._ArgumentGroup) -> None:
    """How pages are shown and waited for."""
    group.add_argument("--whole-page", action="store_true", help="text of the whole page, not of the part in view")
    group.add_argument("--viewport", default="1280x720", metavar="WxH", help="size of the window (default 1280x720)")
    group.add_argument("--pause", type=float, metavar="S", help="wait so long after each action (default: until it is still)")
    group.add_argument("--traces", action="store_true", help="keep a Playwright trace of every episode, in DIR/traces")


def page_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of a browser environment that these flags give. Raises UsageError."""
    width, _, height = args.viewport.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise UsageError(f"--viewport {args.viewport!r}: expected a size such as 1280x720")
    return {"viewport": (int(width), int(height)), "whole_page": args.whole_page, "pause": args.pause}


def traces(args: argparse.Namespace, images: Path) -> Path | None:
    """The folder for Playwright's traces; None when they are not asked for."""
    return images.parent / "traces" if args.traces else None


def task_names(words: str | None, names: Sequence[str], *, ranges: bool = False) -> list[str]:
    """The tasks of `--tasks a,b` or `--tasks all`; with `ranges`, also `0-9`. Raises UsageError for one that is not known."""
    if not words:
        raise UsageError("give --tasks: names, or all")
    if words == "all":
        return list(names)
    wanted = [str(n) for n in numbers(words, "--tasks")] if ranges else [word.strip() for word in words.split(",")]
    if unknown := [name for name in wanted if name not in names]:
        raise UsageError(
            f"--tasks: there is no task {', '.join(unknown)}; there are {len(names)}, such as {', '.join(names[:5])}"
        )
    return wanted
