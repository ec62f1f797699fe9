"""The mock server as a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from prill.errors import EnvironmentFailedError
from prill.testing.endpoint.faults import Faults


@dataclass(frozen=True)
class Stats:
    """The server's counters.

    `outcomes` by name ("ok" or a fault), `prompts` by hash, images and tokens of completions, and
    the tokens that a provider would charge for.
    """

    requests: int
    in_flight: int
    peak_in_flight: int
    images: int
    prompt_tokens: int
    completion_tokens: int
    billed_prompt_tokens: int
    billed_completion_tokens: int
    outcomes: dict[str, int]
    prompts: dict[str, int]


class MockServer:
    """The mock server in a child process: `with MockServer(latency=0.2, rate_limit=0.1) as server:
    ... server.base_url`.

    The server ends with the block, and with this process however it ends.

    Args:
        faults: The settings. None: the defaults.
        port: The port. 0: a free one.
        **settings: Fields of `Faults` that override those of `faults`.
    """

    module: ClassVar[str] = "prill.testing.endpoint.server"
    settings: ClassVar[type[Faults]] = Faults

    def __init__(self, faults: Faults | None = None, *, port: int = 0, **settings: Any) -> None:
        self.faults = replace(faults or self.settings(), **settings)
        self.port = port
        self._process: subprocess.Popen[str] | None = None
        self._base_url = ""

    @property
    def base_url(self) -> str:
        """Returns the base URL for clients, with /v1 at its end; empty before the start."""
        return self._base_url

    @property
    def pid(self) -> int:
        """Returns the server's process id, while it runs."""
        if self._process is None:
            raise EnvironmentFailedError("the mock server is not running")
        return self._process.pid

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", self.module, "--until-eof", "--port", str(self.port)]
        for field in fields(self.faults):
            value = getattr(self.faults, field.name)
            flag = "--" + field.name.replace("_", "-")
            if value is True:
                command.append(flag)
            elif value is not False:
                command.append(f"{flag}={value}")
        # The child can import what this process can: prill from a checkout, and the module of a
        # truth function.
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdout is not None
        self._base_url = self._process.stdout.readline().strip()
        if not self._base_url:
            self.stop()
            raise EnvironmentFailedError(
                "the mock server did not start; its error message is above"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the server; safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stats(self) -> Stats:
        """Returns the counts so far."""
        with urllib.request.urlopen(
            self._base_url.removesuffix("/v1") + "/stats", timeout=30
        ) as answer:
            return Stats(**json.load(answer))
