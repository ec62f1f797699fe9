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

_Seconds = Annotated[float, Meta(gt=0, le=86_400)]


@dataclass(frozen=True, kw_only=True)
class ServiceSpec(Config):
    """The settings of the service: its address, its time limits, and its request limits.

    Raises:
        UsageError: Settings conflict, or `media_root` does not exist.
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
            description="Maximum number of judgements under way, including those that wait. "
            "Further requests get 429.",
        ),
    ] = 4096
    request_timeout: Annotated[
        _Seconds,
        Meta(
            description="Maximum duration of a request in seconds. It then gets 503. For OpenRLHF "
            "and slime it is at most 170 and 110, because their clients wait 180 and 120."
        ),
    ] = 300.0
    grace: Annotated[
        _Seconds,
        Meta(description="Maximum number of seconds from SIGTERM to the end of the process."),
    ] = 360.0
    max_body: Annotated[int, Meta(ge=1, description="Maximum size of a request body in bytes.")] = (
        32_000_000
    )
    max_images: Annotated[
        int, Meta(ge=0, description="Maximum number of images per trajectory.")
    ] = 200
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
            place = f"environment variable {self.token_env}"
            text = os.environ.get(self.token_env, "")
        elif self.token_file:
            place = str(self.token_file)
            try:
                text = Path(place).read_text(encoding="utf-8")
            except (OSError, ValueError) as error:
                raise UsageError(
                    f"{place}: the token cannot be read ({error})", parameters=("token_file",)
                ) from None
        elif self.is_loopback:
            return ()
        else:
            raise UsageError(
                f"other machines can reach {self.host}; set token_env or token_file",
                parameters=("token_env", "token_file"),
            )
        tokens = tuple(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
        if not tokens or not all(
            len(token) >= 16 and token.isascii() and token.isprintable() and " " not in token
            for token in tokens
        ):
            raise UsageError(
                f"{place}: the token needs 16 characters or more, printable ASCII without spaces"
            )
        return tokens


def is_loopback(host: str) -> bool:
    """Returns whether a host name or address is loopback."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
