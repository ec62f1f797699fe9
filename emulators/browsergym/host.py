"""The child process that runs BrowserGym, with one JSON request and reply per line.

A separate process is needed because BrowserGym blocks, shares one Playwright, and leaves browsers
running when it hangs; a process can be killed reliably. Any error ends the process; its traceback
is on stderr.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from prill.emulators.browser.chromium import chromium_path
from prill.emulators.screenshots import keep_screenshot
from prill.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    import gymnasium


class HostRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request: `task` starts an episode, `call` continues it, `benchmark` lists its tasks."""

    task: str | None = None
    seed: int = 0
    call: str | None = None
    benchmark: str | None = None


class HostReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state after a request, or `error` if the request is invalid. `size` is the screenshot's
    size; `boxes` are the boxes of elements by number: left, top, width and height in its pixels.
    """

    error: str | None = None
    tasks: tuple[str, ...] = ()
    goal: str = ""
    screenshot: str = ""
    size: tuple[int, int] = (1, 1)
    boxes: dict[str, tuple[float, float, float, float]] = {}
    text: str = ""
    url: str = ""
    reward: float = 0.0
    done: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of every environment. `slow_mo` is in milliseconds (None: the task's own),
    `pause` in seconds.
    """

    images: str
    slow_mo: int | None
    pause: float


class Host:
    """The host of one environment at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._name = ""
        self._env: gymnasium.Env[Any, Any] | None = None

    def answer(self, request: HostRequest) -> HostReply:
        """Returns the reply to a request."""
        try:
            if request.benchmark is not None:
                return HostReply(tasks=_tasks(request.benchmark))
            if request.task is not None:
                return self._reset(request.task, request.seed)
            return self._step(request.call or "")
        except UsageError as error:
            return HostReply(error=str(error))

    def close(self) -> None:
        """Ends the browser."""
        if self._env is not None:
            self._env.close()

    def _reset(self, name: str, seed: int) -> HostReply:
        if self._env is None or name != self._name:
            self.close()
            self._env, self._name = self._make(name), name
        state, _ = self._env.reset(seed=seed)
        return self._reply(state, 0.0, False)

    def _step(self, call: str) -> HostReply:
        if self._env is None:
            raise UsageError("no episode is open; call reset first")
        state, reward, terminated, truncated, _ = self._env.step(call)
        return self._reply(state, float(reward), bool(terminated or truncated))

    def _make(self, name: str) -> gymnasium.Env[Any, Any]:
        benchmark = name.partition(".")[0]
        if name not in _tasks(benchmark):
            raise UsageError(f"BrowserGym's {benchmark} has no task {name!r}")
        import gymnasium
        from browsergym.core.action.highlevel import HighLevelActionSet

        _one_system_browser()
        actions = HighLevelActionSet(
            ["chat", "infeas", "bid", "coord", "nav", "tab"], multiaction=True
        )
        return gymnasium.make(
            f"browsergym/{name}",
            disable_env_checker=True,
            headless=True,
            slow_mo=self._settings.slow_mo,
            pre_observation_delay=self._settings.pause,
            action_mapping=actions.to_python_code,
            task_kwargs=_task_settings(benchmark),
        )

    def _reply(self, state: Mapping[str, Any], reward: float, done: bool) -> HostReply:
        from browsergym.utils.obs import flatten_axtree_to_str
        from PIL import Image

        # Without generic nodes, clickable spans (MiniWoB's links) would have no number.
        text = flatten_axtree_to_str(
            state["axtree_object"],
            state["extra_element_properties"],
            with_clickable=True,
            skip_generic=False,
            ignored_roles=["LineBreak", "InlineTextBox"],
        )
        png = io.BytesIO()
        picture = Image.fromarray(state["screenshot"])
        picture.save(png, "PNG", compress_level=1)
        shot = keep_screenshot(png.getvalue(), Path(self._settings.images))
        return HostReply(
            goal=str(state["goal"]),
            screenshot=shot,
            size=picture.size,
            boxes={
                bid: tuple(of["bbox"])
                for bid, of in state["extra_element_properties"].items()
                if of["bbox"]
            },
            text=text,
            url=str(state["url"]),
            reward=reward,
            done=done,
        )


def _tasks(benchmark: str) -> tuple[str, ...]:
    """Lists the names of a benchmark's tasks, without `browsergym/`."""
    if (
        importlib.util.find_spec("browsergym") is None
        or importlib.util.find_spec("browsergym.core") is None
    ):
        raise MissingExtraError("browsergym-core", "browsergym")
    module = "core" if benchmark == "openended" else benchmark
    if not module.isidentifier() or importlib.util.find_spec(f"browsergym.{module}") is None:
        raise UsageError(
            f"BrowserGym's {benchmark} is not installed; run: pip install browsergym-{benchmark}"
        )
    import gymnasium

    importlib.import_module(f"browsergym.{module}")
    names = (
        name.removeprefix("browsergym/")
        for name in gymnasium.registry
        if name.startswith("browsergym/")
    )
    return tuple(name for name in names if name == benchmark or name.startswith(f"{benchmark}."))


def _task_settings(benchmark: str) -> dict[str, str]:
    """Returns settings for MiniWoB, whose pages come from the `miniwob` wheel if MINIWOB_URL is not
    set.
    """
    spec = (
        importlib.util.find_spec("miniwob")
        if benchmark == "miniwob" and not os.environ.get("MINIWOB_URL")
        else None
    )
    if spec is None or not spec.submodule_search_locations:
        return {}
    return {
        "base_url": (Path(spec.submodule_search_locations[0]) / "html" / "miniwob").as_uri() + "/"
    }


def _one_system_browser() -> None:
    """Makes BrowserGym start the system's Chromium, and only one."""
    import browsergym.core as core
    import browsergym.core.env as env

    if env.Chat is Chat:
        return
    chromium = core._get_global_playwright().chromium
    launch, path = chromium.launch, chromium_path()
    chromium.launch = lambda **options: launch(**({"executable_path": path} | options))
    env.Chat = Chat


class Chat:
    """BrowserGym's chat without the window that the original opens in a second browser."""

    recording_start_time = None

    def __init__(self, **settings: object) -> None:
        self.messages: list[dict[str, object]] = []

    def add_message(self, role: str, msg: str) -> None:
        """Stores a message; info messages, which the original only displays, are dropped."""
        if role != "info":
            self.messages.append({"role": role, "timestamp": time.time(), "message": msg})

    def wait_for_user_message(self) -> None:
        """Returns at once, since there is no user."""

    def close(self) -> None:
        """Does nothing."""


def main() -> None:
    """Answers requests until the input ends."""
    # Output of libraries must not mix with the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    host = Host(msgspec.json.decode(sys.argv[1], type=Settings))
    for line in sys.stdin.buffer:
        replies.write(
            msgspec.json.encode(host.answer(msgspec.json.decode(line, type=HostRequest))) + b"\n"
        )
        replies.flush()
    host.close()


if __name__ == "__main__":
    main()
