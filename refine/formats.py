"""Exports rows for TRL, LLaMA-Factory, ms-swift and axolotl.

Checked by the loaders of TRL 1.16, LLaMA-Factory 0.9.5, ms-swift 4.6.0 and axolotl 0.19.0
(`make test-frameworks`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, Protocol

from prill.config.registry import Registry, RegistryEntry
from prill.errors import UsageError
from prill.refine.rows import Row

Kind = Literal["sft", "kto", "dpo"]
KINDS: tuple[Kind, ...] = ("sft", "kto", "dpo")
# Image placeholders of plain-text formats, and other special markers of their readers. A page's
# text may contain the same strings.
_PICTURE = "<image>"
_MARKS = re.compile(r"<(image|video|audio|bbox|ref-object|cot-process|start-image)>")


class RowFormat(Protocol):
    """A converter from prill's rows to a trainer's format."""

    def row(self, kind: Kind, row: Row) -> Row:
        """Converts a row of `prill.refine.rows`. Raises UsageError if the trainer can't read it."""
        ...

    def other_files(self, kinds: Sequence[Kind], *, images: bool) -> Mapping[str, str]:
        """Returns the folder's other files by name, such as its README. Rows are `KIND.jsonl`."""
        ...


FORMATS = Registry(
    "row format",
    {
        "trl": RegistryEntry("Hugging Face TRL: prompt and completion", "prill.refine.formats:Trl"),
        "llama-factory": RegistryEntry(
            "LLaMA-Factory: sharegpt, with dataset_info.json", "prill.refine.formats:LlamaFactory"
        ),
        "ms-swift": RegistryEntry(
            "ms-swift: messages, loss on the last one", "prill.refine.formats:Swift"
        ),
        "axolotl": RegistryEntry(
            "axolotl: chat_template, images in the messages", "prill.refine.formats:Axolotl"
        ),
    },
    "prill.rows",
    ("row(kind, row)", "other_files(kinds)"),
)


def make_format(name: str, **options: Any) -> RowFormat:
    """Creates the format of that name or `module:Object`. Raises UsageError for an unknown one."""
    return FORMATS.make(name, options)  # type: ignore[no-any-return]


class Trl:
    """prill's rows unchanged. The loss is on the completion alone."""

    def row(self, kind: Kind, row: Row) -> Row:
        """Returns the row unchanged."""
        return row

    def other_files(self, kinds: Sequence[Kind], *, images: bool) -> Mapping[str, str]:
        """Returns a README that says how to load the rows."""
        trainers = {"sft": "SFTTrainer", "kto": "KTOTrainer", "dpo": "DPOTrainer"}
        lines = [
            (
                f'* `{kind}.jsonl`: `load_dataset("json", data_files="{kind}.jsonl")` for '
                f"`{trainers[kind]}`"
            )
            for kind in kinds
        ]
        if images:
            lines += [
                "* Image paths are relative to this folder: start there, or join them.",
                "* Set `max_length=None`: a length cuts images.",
            ]
        return {"README.md": _readme("TRL", lines)}


class LlamaFactory:
    """ShareGPT messages with `<image>` in the text. LLaMA-Factory drops rows whose roles do not
    alternate, and only logs a warning.
    """

    def row(self, kind: Kind, row: Row) -> Row:
        """Returns the row as one message list, with `label` (KTO) or `chosen` and `rejected`."""
        prompt = [_flat(turn) for turn in row["prompt"]]
        if kind == "dpo":
            return {
                "messages": prompt,
                "chosen": _flat(row["chosen"][0]),
                "rejected": _flat(row["rejected"][0]),
                **_rest(row),
            }
        return {"messages": [*prompt, _flat(row["completion"][0])], **_label(row), **_rest(row)}

    def other_files(self, kinds: Sequence[Kind], *, images: bool) -> Mapping[str, str]:
        """Returns `dataset_info.json`, and a README that says how to load the rows."""
        tags = {
            "role_tag": "role",
            "content_tag": "content",
            "user_tag": "user",
            "assistant_tag": "assistant",
            "system_tag": "system",
        }
        info = {}
        for kind in kinds:
            columns = {"messages": "messages"} | ({"images": "images"} if images else {})
            columns |= {
                "kto": {"kto_tag": "label"},
                "dpo": {"chosen": "chosen", "rejected": "rejected"},
            }.get(kind, {})
            ranking = {"ranking": True} if kind == "dpo" else {}
            info[f"prill_{kind}"] = {
                "file_name": f"{kind}.jsonl", "formatting": "sharegpt", **ranking, "columns": columns, "tags": tags  # noqa: E501
            }  # fmt: skip
        stages = ", ".join(f"`stage: {kind}` with `dataset: prill_{kind}`" for kind in kinds)
        lines = [f"* `dataset_dir:` this folder (images are looked for there, too), {stages}."]
        if "sft" in kinds:
            lines.append(
                "* `mask_history: true` with `stage: sft`: only the last answer is to be learned, "
                "not those of worked examples in the prompt. The other stages do so anyway, and "
                "refuse to start with it."
            )
        return {
            "dataset_info.json": json.dumps(info, indent=1) + "\n",
            "README.md": _readme("LLaMA-Factory", lines),
        }


class Swift:
    """Messages with `<image>` in the text; the loss is on the last message alone."""

    def row(self, kind: Kind, row: Row) -> Row:
        """Returns the row as one message list, with `label` (KTO), `rejected_response` (pairs)."""
        answer = row["chosen" if kind == "dpo" else "completion"][0]
        turns = [_flat(turn) for turn in row["prompt"]]
        messages = [
            {**turn, "loss": False} if turn["role"] == "assistant" else turn for turn in turns
        ]
        messages.append({**_flat(answer), "loss": True})
        rejected = (
            {"rejected_response": _flat(row["rejected"][0])["content"]} if kind == "dpo" else {}
        )
        return {"messages": messages, **rejected, **_label(row), **_rest(row)}

    def other_files(self, kinds: Sequence[Kind], *, images: bool) -> Mapping[str, str]:
        """Returns a README that says how to load the rows."""
        methods = {
            "sft": "`swift sft`",
            "kto": "`swift rlhf` with `rlhf_type: kto`",
            "dpo": "`swift rlhf` with `rlhf_type: dpo`",
        }
        lines = [f"* {methods[kind]} and `dataset: {kind}.jsonl`" for kind in kinds]
        if images:
            lines.append(
                "* `ROOT_IMAGE_DIR` in the environment names this folder, from which image paths "
                "start."
            )
        return {"README.md": _readme("ms-swift", lines)}


class Axolotl:
    """`chat_template` messages with image paths inside: axolotl reads only the first image of a
    column `images`.

    Its KTO and DPO readers support text only. It reads the field `training` in text rows only.
    """

    def row(self, kind: Kind, row: Row) -> Row:
        """Returns messages with image paths inside; for KTO, `completion` is the whole chat, as
        axolotl's `argilla_chat` expects.
        """
        images = iter(row.get("images", ()))
        if kind != "sft" and "images" in row:
            raise UsageError(
                f"axolotl does not read {kind} rows with images; use sft rows, or another format",
                parameters=("format",),
            )
        prompt = [_placed(turn, images) for turn in row["prompt"]]
        named: dict[str, Any] = {key: row[key] for key in ("trajectory", "step") if key in row}
        if kind == "dpo":
            return {
                "messages": prompt,
                "chosen": row["chosen"][0],
                "rejected": row["rejected"][0],
                **named,
            }
        turns = [*prompt, row["completion"][0]]
        if kind == "kto":
            return {"completion": turns, "label": row["label"], **named}
        return {"messages": [{**turn, "training": turn is turns[-1]} for turn in turns], **named}

    def other_files(self, kinds: Sequence[Kind], *, images: bool) -> Mapping[str, str]:
        """Returns a README that says how to load the rows."""
        types = {
            "sft": (
                "`type: chat_template`, `message_field_training: training`: the last answer "
                "alone is learned"
            ),
            "kto": "`rl: kto`, `type: chatml.argilla_chat` (or `llama3.argilla_chat`)",
            "dpo": "`rl: dpo`, `type: chat_template.default`",
        }
        lines = [
            f"* `datasets: [{{path: {kind}.jsonl, ds_type: json, …}}]` with {types[kind]}"
            for kind in kinds
        ]
        if images:
            lines += [
                "* With images: `skip_prepare_dataset: true`, `remove_unused_columns: false`, "
                "`sample_packing: false`; their paths are relative to this folder, so start there.",
                "* With images axolotl does not read `training`: it learns every answer of a row, "
                "those of worked examples in the prompt, too. Where the prompt has some, take "
                "another format.",
            ]
        return {"README.md": _readme("axolotl", lines)}


def _flat(turn: Row) -> Row:
    """Converts a turn's content to one text with a placeholder for each image. Placeholders in the
    text itself are escaped.
    """
    content = turn["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [
        _PICTURE if part["type"] == "image" else _MARKS.sub(r"< \1 >", part["text"])
        for part in parts
    ]
    text = texts[0]
    for before, part in pairwise(texts):
        text += part if before == _PICTURE else f"\n\n{part}"
    return {"role": turn["role"], "content": text}


def _placed(turn: Row, images: Any) -> Row:
    if isinstance(turn["content"], str):
        return turn
    parts = [
        {"type": "image", "path": next(images)} if part["type"] == "image" else part
        for part in turn["content"]
    ]
    return {"role": turn["role"], "content": parts}


def _label(row: Row) -> Row:
    return {"label": row["label"]} if "label" in row else {}


def _rest(row: Row) -> Row:
    return {key: row[key] for key in ("images", "trajectory", "step") if key in row}


def _readme(name: str, lines: Sequence[str]) -> str:
    return (
        f"# Rows for {name}\n\n"
        + "\n".join(lines)
        + "\n\n`manifest.json` says what they were made of.\n"
    )
