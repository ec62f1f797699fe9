"""Settings of the service, the same in Python, TOML, JSON and flags."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from prill.config.values import Config
from prill.errors import UsageError
from prill.io.images import MAX_PIXELS
from prill.service.memory import CLIENT_SHARE, VALUE_BYTES

_Seconds = Annotated[float, Meta(gt=0, le=86_400)]


@dataclass(frozen=True, kw_only=True)
class ServiceSpec(Config):
    """The settings of the service: its address, its time limits, and its request limits.

    Each trainer's client has its own timeout, and handles it badly: OpenRLHF gives up after 180 s
    and five attempts a second apart, slime after 120 s and ten. A request is therefore held
    slightly shorter than its client waits.

    Raises:
        UsageError: Settings conflict, `media_root` does not exist, or `max_memory` is less than a
            request may take.
    """

    host: Annotated[
        str, Meta(description="Address to bind to. A non-loopback address requires a token.")
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65_535, description="Port to bind to; 0 for any free port.")
    ] = 8700
    token_env: Annotated[
        str | None, Meta(description="Environment variable with the token that clients must send.")
    ] = None
    token_file: Annotated[str | Path | None, Meta(description="File with one token per line.")] = (
        None
    )
    media_root: Annotated[
        str | Path | None,
        Meta(
            description="Folder of the recordings and images that requests may refer to by "
            "path; by default none."
        ),
    ] = None
    max_active: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum number of requests in progress. Further requests wait unread.",
        ),
    ] = 1024
    max_waiting: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum number of waiting requests. Further requests get 503 at once.",
        ),
    ] = 4096
    request_timeout: Annotated[
        _Seconds, Meta(description="Maximum duration of a request in seconds. It then gets 503.")
    ] = 300.0
    openrlhf_timeout: Annotated[
        _Seconds, Meta(description="The same for OpenRLHF, whose clients time out after 180 s.")
    ] = 170.0
    slime_timeout: Annotated[
        _Seconds, Meta(description="The same for slime, whose clients time out after 120 s.")
    ] = 110.0
    judge_timeout: Annotated[
        _Seconds,
        Meta(
            description="Timeout of one verdict in seconds. The trajectory is then "
            "unscored (timeout)."
        ),
    ] = 600.0
    grace: Annotated[
        _Seconds,
        Meta(description="Maximum number of seconds from SIGTERM to the end of the process."),
    ] = 360.0
    max_body: Annotated[int, Meta(ge=1, description="Maximum size of a request body in bytes.")] = (
        32_000_000
    )
    max_memory: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum estimated memory of requests and jobs in progress, in "
            "bytes. Further requests wait.",
        ),
    ] = 100_000_000
    max_values: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum number of JSON values in a request. Commas and brackets "
            "inside strings count, too.",
        ),
    ] = 400_000
    body_timeout: Annotated[
        _Seconds, Meta(description="Maximum number of seconds a client may take to send a request.")
    ] = 60.0
    max_items: Annotated[
        int, Meta(ge=1, description="Maximum number of trajectories per request.")
    ] = 256
    max_images: Annotated[
        int, Meta(ge=0, description="Maximum number of images per trajectory.")
    ] = 200
    max_pixels: Annotated[
        int, Meta(ge=1, le=MAX_PIXELS, description="Maximum number of pixels per image.")
    ] = 16_000_000
    max_image_bytes: Annotated[
        int, Meta(ge=1, description="Maximum total size of the images of a request, in bytes.")
    ] = 512_000_000
    max_request_pixels: Annotated[
        int, Meta(ge=1, description="Maximum total number of pixels of the images of a request.")
    ] = 4_000_000_000
    max_jobs: Annotated[
        int, Meta(ge=1, description="Maximum number of jobs kept, including finished ones.")
    ] = 256
    max_results: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum total size of the results of finished jobs, in bytes. The "
            "oldest are dropped first.",
        ),
    ] = 16_000_000
    log: Annotated[
        Literal["quiet", "requests", "verdicts"],
        Meta(
            description="Log on stderr: nothing, one line per request (no text, no keys), "
            "or also verdicts with reasons."
        ),
    ] = "quiet"

    def check(self) -> None:
        """Validates settings that depend on each other."""
        if self.token_env and self.token_file:
            raise UsageError(
                "give either token_env or token_file", parameters=("token_env", "token_file")
            )
        if self.media_root is not None and not Path(self.media_root).is_dir():
            raise UsageError(
                f"media_root {self.media_root}: no such folder", parameters=("media_root",)
            )
        needed = round((self.max_body + VALUE_BYTES * self.max_values) / CLIENT_SHARE)
        if self.max_memory < needed:
            raise UsageError(
                f"max_memory is {self.max_memory:,}, but a request may need {needed:,} (by "
                "max_body and max_values); raise it",
                parameters=("max_memory", "max_body", "max_values"),
            )

    @property
    def longest_timeout(self) -> float:
        """Returns the longest time limit of a request of any client, in seconds."""
        return max(self.request_timeout, self.openrlhf_timeout, self.slime_timeout)

    @property
    def is_loopback(self) -> bool:
        """Returns whether only this machine can reach the address."""
        return is_loopback(self.host)

    def tokens(self) -> tuple[str, ...]:
        """Returns the accepted tokens; empty if no token is required.

        Raises:
            UsageError: A token is missing, cannot be read or is too weak.
        """
        if self.token_env:
            place, text = (
                f"environment variable {self.token_env}",
                os.environ.get(self.token_env, ""),
            )
        elif self.token_file:
            try:
                place, text = (
                    str(self.token_file),
                    Path(self.token_file).read_text(encoding="utf-8"),
                )
            except (OSError, ValueError) as error:
                raise UsageError(
                    f"{self.token_file}: the token cannot be read ({error})",
                    parameters=("token_file",),
                ) from None
        elif self.is_loopback:
            return ()
        else:
            raise UsageError(
                f"other machines can reach {self.host}; set token_env or token_file",
                parameters=("token_env", "token_file"),
            )
        tokens = tuple(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
        if not tokens or not all(map(_is_good, tokens)):
            raise UsageError(
                f"{place}: the token needs 16 characters or more, printable ASCII without spaces"
            )
        return tokens


def _is_good(token: str) -> bool:
    return len(token) >= 16 and token.isascii() and token.isprintable() and " " not in token


def is_loopback(host: str) -> bool:
    """Returns whether a host name or address is loopback."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
