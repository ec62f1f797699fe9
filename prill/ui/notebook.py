"""What a notebook shows of a trajectory: its goal, its actions and the last picture."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from prill.errors import InputError
from prill.io.images import DAMAGED, open_image, open_image_file
from prill.text import printable
from prill.types import Trajectory
from prill.ui.report.pictures import data_url

_MAX_STEPS = 50
_MAX_TEXT = 300  # characters of a goal, an action or an answer


def trajectory_html(trajectory: Trajectory) -> str:
    """Returns the trajectory as HTML; text from pages and agents is escaped and cut."""
    return f"<div>{''.join(_parts(trajectory))}</div>"


def _parts(trajectory: Trajectory) -> Iterator[str]:
    yield f"<p><b>{_text(trajectory.task.goal)}</b><br>{_text(trajectory.id)}</p>"
    steps = trajectory.steps
    shown = "".join(
        f"<li>{_text(step.action.text or step.action.kind)}</li>" for step in steps[:_MAX_STEPS]
    )
    yield f"<ol>{shown}</ol>" if shown else ""
    if len(steps) > _MAX_STEPS:
        yield f"<p>… and {len(steps) - _MAX_STEPS} more steps</p>"
    for name, text in (("answer", trajectory.answer), ("error", trajectory.error)):
        yield f"<p>{name}: {_text(text)}</p>" if text else ""
    yield _picture(trajectory)


def _picture(trajectory: Trajectory) -> str:
    last = next((o.screenshot for o in reversed(trajectory.observations) if o.screenshot), None)
    if last is None:
        return ""
    try:
        with open_image_file(last) as file:
            url = data_url(open_image(file, last), file).decode()
    except (InputError, *DAMAGED) as error:
        return f"<p>{_text(str(error))}</p>"
    return f'<img src="{url}" alt="last state" style="max-width: 480px">'


def _text(text: str) -> str:
    return escape(printable(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"))
