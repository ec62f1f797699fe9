"""The settings of the reward service: the same in Python, in a table of TOML or JSON, and on the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from prill.errors import UsageError
from prill.files.toml import read_table
from prill.models.images import MAX_PIXELS
from prill.registry import read_options

_Seconds = Annotated[float, Meta(gt=0, le=86_400)]


@dataclass(frozen=True, kw_only=True)
class ServiceSpec:
    """Where the service listens, how long it holds requests, and what it refuses.

    How long a trainer's client waits is its own setting, and what it does after that is bad: OpenRLHF gives up after 180 s and
    five tries a second apart, slime after 120 s and ten. So a request is held a little less long than its client waits.
    """

    host: Annotated[str, Meta(description="address to listen at; any but this machine's own needs a token")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="port; 0: any that is free")] = 8700
    token_env: Annotated[str | None, Meta(description="environment variable that holds the token clients must show")] = None
    token_file: Annotated[Path | None, Meta(description="file that holds the token")] = None
    media_root: Annotated[
        Path | None, Meta(description="folder that requests may name recordings and images in; by default none")
    ] = None
    queue: Annotated[int, Meta(ge=1, description="requests inside at most; more wait at the door, unread")] = 1024
    door: Annotated[int, Meta(ge=1, description="requests waiting at the door at most; more get 503 at once")] = 4096
    hold: Annotated[_Seconds, Meta(description="seconds that a request is held, then it gets 503")] = 300.0
    hold_openrlhf: Annotated[_Seconds, Meta(description="the same for OpenRLHF, whose clients wait 180 s")] = 170.0
    hold_slime: Annotated[_Seconds, Meta(description="the same for slime, whose clients wait 120 s")] = 110.0
    max_body: Annotated[int, Meta(ge=1, description="bytes of a request at most")] = 32_000_000
    body_timeout: Annotated[_Seconds, Meta(description="seconds that a client may take to send a request")] = 60.0
    max_items: Annotated[int, Meta(ge=1, description="trajectories in a request at most")] = 256
    max_images: Annotated[int, Meta(ge=0, description="images of a trajectory at most")] = 200
    max_pixels: Annotated[int, Meta(ge=1, le=MAX_PIXELS, description="pixels of an image at most")] = 16_000_000
    max_jobs: Annotated[int, Meta(ge=1, description="jobs kept at most, finished ones included")] = 256
    log: Annotated[
        Literal["quiet", "requests", "verdicts"],
        Meta(description="on stderr: nothing, a line a request (no text, no keys), or verdicts with their reasons too"),
    ] = "quiet"

    def __post_init__(self) -> None:
        if self.token_env and self.token_file:
            raise UsageError("token_env and token_file: give one of them", parameters=("token_env", "token_file"))
        if self.media_root is not None and not self.media_root.is_dir():
            raise UsageError(f"media_root {self.media_root}: no such folder", parameters=("media_root",))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        return is_loopback(self.host)

    def token(self) -> str | None:
        """The token that clients must show; None where none is asked for. Raises UsageError where one is missing."""
        token = None
        if self.token_env:
            token = os.environ.get(self.token_env, "").strip()
            place = f"environment variable {self.token_env}"
        elif self.token_file:
            try:
                token = self.token_file.read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                raise UsageError(f"{self.token_file}: the token cannot be read ({error})", parameters=("token_file",)) from None
            place = str(self.token_file)
        elif not self.is_loopback:
            raise UsageError(
                f"other machines can reach {self.host}: name a token that clients must show",
                parameters=("token_env", "token_file"),
            )
        if token is not None and (len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token):
            raise UsageError(f"{place}: the token must have 16 characters or more, printable ASCII without spaces")
        return token


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine, as nobody but this machine sees it."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def service_table(path: str | os.PathLike[str], **changes: Any) -> tuple[ServiceSpec, dict[str, Any]]:
    """The settings of a .toml or .json file, and the description of the reward under its key `reward` (the judge's options and
    the reward's own). `changes` go before what the file says. Raises UsageError."""
    return read_service(read_table(path), place=f"{path}: ", **changes)


def read_service(table: Mapping[str, Any], *, place: str = "", **changes: Any) -> tuple[ServiceSpec, dict[str, Any]]:
    """The same of a table."""
    options = {str(key).replace("-", "_"): value for key, value in table.items()}
    reward = options.pop("reward", None)
    if not isinstance(reward, Mapping):
        raise UsageError(f"{place}reward is missing: a table with the judge (`evaluator = …`) and its options")
    return ServiceSpec(**{**read_options(ServiceSpec, options, "the service", place=place), **changes}), dict(reward)
