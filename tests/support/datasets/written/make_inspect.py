"""Writes logs with Inspect itself: its evaluation, our tool instead of a sandbox's computer, and a
scripted model.

    python make_inspect.py OUT [old]

OUT gets `short.eval`, `long.eval`, `cut.eval`, `broken.eval`, the same in chunks as
`chunked-….eval`, and `short.json`. With `old`, for a version without zstd and chunks, the names are
`old-….eval`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["INSPECT_DISPLAY"] = "none"

from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log, write_eval_log
from inspect_ai.model import (
    ChatMessageAssistant,
    ContentImage,
    ContentReasoning,
    ContentText,
    ModelAPI,
    ModelOutput,
    get_model,
)
from inspect_ai.scorer import Score, accuracy, includes, scorer
from inspect_ai.solver import basic_agent, generate, solver
from inspect_ai.tool import ToolCall, tool
from scripted import png


async def count_words(self: Any, text: str) -> int:
    """Replaces a tokenizer, which would be downloaded."""
    return len(text.split())


ModelAPI.count_text_tokens = count_words


@tool
def computer() -> Any:
    async def execute(
        action: str = "",
        coordinate: list[int] | None = None,
        text: str | None = None,
        scroll_direction: str | None = None,
        actions: list[dict[str, Any]] | None = None,
    ) -> Any:
        """Uses a computer.

        Args:
            action: What to do.
            coordinate: Where.
            text: What to type.
            scroll_direction: Where to.
            actions: Several in place of one.
        """
        execute.count += 1
        return [
            ContentText(text=f"the screen, {'x' * 150}"),
            ContentImage(image=png(10 * execute.count)),
        ]

    execute.count = 0
    return execute


def call(
    text: str, *calls: dict[str, Any], reasoning: str = "", function: str = "computer"
) -> ModelOutput:
    """Returns a reply with calls of a tool."""
    content: Any = (
        [ContentReasoning(reasoning=reasoning), ContentText(text=text)] if reasoning else text
    )
    made = [
        ToolCall(id=f"{text[:20]}-{i}", function=function, arguments=arguments, type="function")
        for i, arguments in enumerate(calls)
    ]
    output = ModelOutput.from_content("mockllm/model", "x")
    output.choices[0].message = ChatMessageAssistant(
        content=content, tool_calls=made, source="generate"
    )
    output.choices[0].stop_reason = "tool_calls"
    return output


LONG = [
    call("Look first", {"action": "screenshot"}, reasoning="I know nothing yet"),
    call("Click buy", {"action": "left_click", "coordinate": [16, 8]}),
    call(
        "Type and confirm",
        {"action": "type", "text": "green tea"},
        {"action": "key", "text": "Return"},
    ),
    call("Down", {"action": "scroll", "coordinate": [32, 16], "scroll_direction": "down"}),
    call(
        "Two at once",
        {
            "actions": [
                {"action": "left_click", "coordinate": [48, 24]},
                {"action": "type", "text": "2"},
            ]
        },
    ),
    call("I am done", {"answer": "Bought green tea."}, function="submit"),
]


@scorer(metrics=[accuracy()])
def fraction() -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score(value=0.25, explanation="EXPLANATION of a quarter")

    return score


@scorer(metrics=[accuracy()])
def unscored() -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score(value=float("nan"), explanation="none")

    return score


@solver
def breaks() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        await generate(state)
        raise RuntimeError("the environment broke")

    return solve


def computer_agent() -> Any:
    return basic_agent(tools=[computer()], max_attempts=1)


@task
def shop(which: str) -> Task:
    samples = {
        "short": Sample(id="short", input="What is 2 + 2?", target="TARGET 4"),
        "long": Sample(
            id="long",
            input="Buy green tea " + "please " * 30,
            target="TARGET tea",
            metadata={"level": "easy"},
        ),
        "cut": Sample(id="cut off", input="Buy black tea", target="TARGET black"),
        "broken": Sample(id="broken/1", input="Buy white tea", target="TARGET white"),
    }
    solvers = {
        "short": generate(),
        "long": computer_agent(),
        "cut": computer_agent(),
        "broken": breaks(),
    }
    return Task(
        dataset=[samples[which]],
        solver=solvers[which],
        scorer=[includes(), fraction(), unscored()],
        name="shop",
    )


def main(out: Path, old: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    replies = {
        "short": [ModelOutput.from_content("mockllm/model", "It is 4.") for _ in range(2)],
        "long": LONG,
        "cut": LONG,
        "broken": [ModelOutput.from_content("mockllm/model", "Trying.")],
    }
    for which, outputs in replies.items():
        with tempfile.TemporaryDirectory() as logs:
            model = get_model("mockllm/model", custom_outputs=outputs, memoize=False)
            limit = {"message_limit": 6} if which == "cut" else {}
            eval(
                shop(which),
                model=model,
                log_dir=logs,
                fail_on_error=False,
                epochs=2 if which == "short" else 1,
                **limit,
            )
            (made,) = Path(logs).glob("*.eval")
            shutil.copy(made, out / f"{'old-' if old else ''}{which}.eval")
            if not old:
                from inspect_ai.log._recorders.chunked.convert import convert_eval_logs_to_chunked

                convert_eval_logs_to_chunked(str(made), str(Path(logs) / "chunked"), chunk_size=3)
                (chunked,) = (Path(logs) / "chunked").glob("*.eval")
                shutil.copy(chunked, out / f"chunked-{which}.eval")
            if which == "short" and not old:
                write_eval_log(read_eval_log(str(made)), str(out / "short.json"), format="json")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] == ["old"])
