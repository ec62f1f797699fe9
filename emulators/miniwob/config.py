"""Configuration of MiniWoB++."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from prill.emulators.registry import make_environment
from prill.emulators.settings import EnvironmentConfig, Playing, Setting
from prill.emulators.task_source import Names, task_names, to_words


@dataclass(frozen=True, kw_only=True)
class MiniWobConfig(EnvironmentConfig):
    """MiniWoB++ in the system's Chromium: `MiniWobConfig(tasks=["click-link", "enter-text"])`."""

    name: ClassVar[str] = "miniwob"
    usual_policy: ClassVar[str | None] = "scripted"
    _told: ClassVar[frozenset[str]] = frozenset({"tasks", "text", "hidden", "settle", "announce_end"})

    tasks: Annotated[Names, Meta(description="tasks of MiniWoB++, or all (for the scripted policy, all that it knows)")] = None
    text: Annotated[
        Literal["lines", "html"] | None,
        Meta(description="how the page is told as text (default: as the policy reads it, else lines)"),
    ] = None
    hidden: Annotated[bool, Meta(description="show hidden elements in the text too")] = False
    settle: Annotated[float, Meta(ge=0, description="seconds of the page's time after each action")] = 0.5
    announce_end: Annotated[
        bool | None, Meta(description="end the episode when the page gives its reward (default: but for the scripted policy)")
    ] = None
    boxes: Annotated[bool, Meta(description="html says where each element is: data-wob_box")] = False
    timeout: Annotated[float, Meta(gt=0, description="seconds for a reset or a step")] = 30.0

    def check(self) -> None:
        """Names become one text."""
        object.__setattr__(self, "tasks", to_words(self.tasks))

    def setting(self, run: Playing) -> Setting[Any]:
        """Makes a browser, and a page for each worker."""
        from prill.emulators.browser.chromium import Chromium
        from prill.emulators.miniwob.environment import MiniWoB

        browser = Chromium()
        # If the page ended its episodes, the scripted agent would have the last word exactly in those that were not submitted.
        told = {
            "announce_end": not run.scripted if self.announce_end is None else self.announce_end,
            "settle": self.settle,
            "text": self.text or run.page_text or "lines",
            "hidden": self.hidden,
        }
        options: dict[str, Any] = {**told, "boxes": self.boxes, "timeout": self.timeout}
        environments: list[Any] = [
            make_environment("miniwob", images=run.images, browser=browser, **options) for _ in range(run.copies)
        ]
        tasks = task_names(self.tasks, MiniWoB.tasks()) if self.tasks or not run.listed else []
        return Setting(environments, tasks, MiniWoB.task, MiniWoB.grade, {**told, **self.more()}, browser.close)

    def scripts(self) -> None:
        """The scripted policy knows the tasks by itself."""
        return None
