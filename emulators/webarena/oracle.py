"""WebArena's evaluator: decides success by the rules in the task (arXiv 2307.13854).

The score is the product over the types of checks that a task names: `oracle_answers` checks the
answer and the last address, `oracle_pages` the content of the sites' pages. Mode `paper` keeps the
known defects of the original code, so that published numbers can be reproduced; `fixed` corrects
them (tables in those two modules). This module corrects two more. Messages such as "Early stop:
Reach max steps 30", by which the harness ended an episode, were graded as the agent's answer, and
their numbers could match (corrected in `fixed`). Pages were opened in the agent's tab, so that
grading twice could give two results (corrected in both modes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from prill.datasets.webarena_tasks import Check, Mode, TaskConfig, make_task, note, product
from prill.emulators.webarena.oracle_answers import check_answer, check_url, hosts
from prill.emulators.webarena.oracle_pages import SETTLE, ShopAccess, check_pages, shop_access
from prill.errors import UsageError
from prill.protocols import LanguageModel
from prill.types import LabelRecord, Trajectory

if TYPE_CHECKING:
    from playwright.async_api import Page


_ENDED_BY = ("Early stop:", "ERROR:")


class WebArenaOracle:
    """Grades episodes of WebArena's tasks.

    A check that cannot be carried out leaves the label undecided, unless another check failed.

    Args:
        configs: The tasks with their checks. An episode's `task.id` is `webarena.<number>`.
        mode: `paper` keeps the known defects of the original code; `fixed` does not.
        model: Decides checks of free text: fuzzy references, and reasons why a task cannot be
            done. None: such a check is undecided.
        shop: Access to the shop's REST API, for checks that use it. None: read the environment
            variables.
        settle: The time that a page may take to show its content, in seconds (the original waits
            3).

    Raises:
        UsageError: The mode is unknown.
    """

    def __init__(
        self,
        configs: Iterable[TaskConfig],
        *,
        mode: Mode = "paper",
        model: LanguageModel | None = None,
        shop: ShopAccess | None = None,
        settle: float = SETTLE,
    ) -> None:
        if mode not in ("paper", "fixed"):
            raise UsageError(f"mode {mode!r}: expected paper or fixed")
        self._configs = {make_task(config).id: config for config in configs}
        self._hosts = hosts(self._configs.values())
        self._mode: Mode = mode
        self._model = model
        self._shop = shop or shop_access()
        self._settle = settle

    async def grade(self, trajectory: Trajectory, page: Page | None = None) -> LabelRecord:
        """Labels an episode.

        Args:
            trajectory: The episode.
            page: The agent's last page. None: use the recording only.

        Returns:
            The label; its note says which checks failed or are undecided.

        Raises:
            UsageError: The task is not among the configurations.
            EndpointError: The model cannot be used at all.
        """
        config = self._configs.get(trajectory.task.id)
        if config is None:
            raise UsageError(
                f"trajectory {trajectory.id}: the oracle has no task {trajectory.task.id!r}"
            )
        if trajectory.error is not None:
            return self._label(trajectory, None, f"ended with an error: {trajectory.error}")
        checks = await self._checks(config, trajectory, page)
        return self._label(trajectory, product(checks), note(checks))

    async def _checks(
        self, config: TaskConfig, trajectory: Trajectory, page: Page | None
    ) -> list[Check]:
        url = last_url(trajectory) if page is None else page.url
        checks: list[Check] = []
        for kind in config.eval.eval_types:
            if kind == "string_match":
                checks += await check_answer(
                    config, extract_answer(trajectory, self._mode), self._mode, self._model
                )
            elif kind == "url_match":
                # A recording may use other host names than the tasks; an open page uses the same.
                checks.append(
                    check_url(config, url, self._mode, self._hosts if page is None else None)
                )
            else:
                checks += await check_pages(
                    config.eval.program_html, page, self._shop, self._mode, self._settle
                )
        return checks

    def _label(
        self, trajectory: Trajectory, success: bool | None, reason: str | None
    ) -> LabelRecord:
        who = f"webarena-{self._mode}" + (f"+{self._model.name}" if self._model else "")
        return LabelRecord(
            id=trajectory.id, success=success, source="oracle", annotator=who, note=reason
        )


def extract_answer(trajectory: Trajectory, mode: Mode) -> str:
    """Returns the answer to grade, "" for none. In `paper` mode, an early end gives the original
    harness's message as the answer.
    """
    if trajectory.answer is not None or mode == "fixed":
        return trajectory.answer or ""
    ended_by, stopped = (_text(trajectory.metadata, key) for key in ("ended_by", "stopped"))
    if ended_by.startswith(_ENDED_BY):
        return ended_by
    if ended_by == "max_steps":
        return f"Early stop: Reach max steps {len(trajectory.steps)}"
    return f"Early stop: {stopped}" if stopped else ""


def last_url(trajectory: Trajectory) -> str | None:
    """Returns the address of the episode's last page; None if it was not recorded."""
    if trajectory.final is not None:
        return trajectory.final.url
    # The state before a final action is the last one; the state after another action is unknown.
    return (
        trajectory.steps[-1].observation.url
        if trajectory.steps and trajectory.steps[-1].action.is_final
        else None
    )


def _text(values: Mapping[str, object], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""
