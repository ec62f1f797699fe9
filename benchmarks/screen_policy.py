"""Tests whether a small screen policy improves by its own attempts:
`python benchmarks/screen_policy.py OUT`.

A Qwen3-VL of a million random parameters learns MiniWoB++ click tasks from pictures alone: from
scripted play first (all weights), then from its own attempts, by `prill.filtered_bc` (an adapter).
The arms learn from all attempts, from those that the page rewarded, and from those of a judge that
is wrong in known shares. All play the same fresh seeds, and the study's tables compare them.

It needs the extras `train` and `web`, `miniwob` and Chromium. Each stage is prill's own and
continues where it was stopped; a folder holds one run, so other settings need another folder.
Several processes may share the arms. `--steps 2 --teacher 4 --attempts 4 --evaluation 4` tries the
chain in a minute, and teaches nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import prill
from prill.models.local.torchvision import mend_torchvision

TEACHER = 10_000  # the first seed of scripted play; attempts begin at 0
PATCH = 20  # pixels of a side; four patches are a token of the language model
PIXELS = 160 * 210  # half of each side of a screenshot: a picture of 160 x 200, which is 20 tokens
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
TEMPLATE = """\
{%- macro words(content) -%}
{%- if content is string -%}{{ content }}
{%- else -%}
{%- for part in content -%}
{%- if part.type == 'text' -%}{{ part.text }}{%- else -%}<|vision_start|><|image_pad|><|vision_end|>{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- for turn in messages -%}<|im_start|>{{ turn.role }}{{ words(turn.content) }}<|im_end|>{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant{%- endif -%}"""  # noqa: E501
LEARNING: dict[str, Any] = {
    "learning_rate": 2e-3,
    "schedule": "cosine",
    "warmup": 0.05,
    "beta2": 0.98,
    "dropout": 0.0,
}
PRESET = "qwen3-vl"
TRAINING: dict[str, Any] = {
    "batch": 16,
    "micro_batch": 16,
    "held_out": 0.0,
    "workers": 0,
    "dtype": "float32",
}
POLICY = {"name": "screen", "grammar": "qwen3-vl", "history": 1, "max_tokens": 48}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder for everything; the same command resumes")
    parser.add_argument(
        "--tasks",
        default="click-dialog-2",
        help="tasks of MiniWoB++ that a click ends, with commas between",
    )
    parser.add_argument("--teacher", type=int, default=60, help="scripted episodes of each task")
    parser.add_argument("--steps", type=int, default=150, help="steps of 16 rows on scripted play")
    parser.add_argument(
        "--attempts",
        type=int,
        default=400,
        help="own attempts at each task, drawn at temperature 1",
    )
    parser.add_argument("--own-steps", type=int, help="steps on own attempts (default: as --steps)")
    parser.add_argument(
        "--evaluation", type=int, default=200, help="fresh episodes of each task, played greedily"
    )
    parser.add_argument(
        "--fresh",
        type=int,
        default=20_000,
        help="first seed of these episodes; nothing else uses them",
    )
    parser.add_argument("--seeds", default="0", help="training seeds of the arms")
    parser.add_argument(
        "--workers", type=int, default=3, help="pages that are open at the same time"
    )
    args = parser.parse_args(argv)
    print(run(args))
    return 0


def run(args: argparse.Namespace) -> prill.FilteredBCResult:
    """Runs all unfinished stages."""
    import torch

    torch.set_num_threads(1)
    out, tasks = args.out, args.tasks.split(",")
    rows = scripted_rows(out, tasks, args.teacher, args.workers)
    weights = out / "untrained"
    if not (weights / "config.json").exists():
        untrained(rows, weights)
    base = prill.PresetConfig(
        PRESET, **TRAINING, **LEARNING, model=str(weights), method="full", steps=args.steps
    )
    prill.train(
        prill.TrainPolicyConfig(rows=rows, output=out / "base", preset=base),
        progress=told(out / "base.log"),
    )
    study = prill.FilteredBCConfig(
        output=out / "study",
        seeds=args.seeds,
        policy={**POLICY, "model": f"local:{out / 'base'}"},
        episodes={
            "environment": "miniwob",
            "tasks": tasks,
            "max_steps": 1,
            "workers": args.workers,
        },
        attempts={"seeds": f"0-{args.attempts - 1}", "temperature": 1.0},
        evaluation={"seeds": f"{args.fresh}-{args.fresh + args.evaluation - 1}"},
        training={
            "preset": PRESET,
            **TRAINING,
            **LEARNING,
            "rank": 32,
            "targets": "all",
            "learning_rate": 1e-3,
            "steps": args.own_steps or args.steps,
        },
        arms=[
            prill.refine.StudyArm(name="self-training"),
            prill.refine.StudyArm(name="filtered", judge="oracle"),
            prill.refine.StudyArm(
                name="noisy",
                judge={"name": "noisy", "false_positives": 0.15, "false_negatives": 0.2},
            ),
        ],
    )
    return prill.filtered_bc(study)


class Colour:
    """Teaches click-color, whose page has no text: clicks the middle of what has the colour that
    the goal names.

    Where more than the box has it (white, and black as the borders are), it misses, and the oracle
    leaves the episode out.
    """

    def reset(self, task: prill.Task) -> None:
        self.name = task.goal.removeprefix("Click on the ").partition(" ")[0]

    async def act(self, observation: prill.Observation) -> prill.Step:
        from PIL import Image, ImageChops, ImageColor, ImageOps

        with Image.open(observation.screenshot or "") as file:
            picture = file.convert("RGB")
        top = 100  # below the instruction
        below = picture.crop((0, top, *picture.size))
        apart = ImageChops.difference(
            below, Image.new("RGB", below.size, ImageColor.getrgb(self.name))
        ).convert("L")
        box = ImageOps.invert(apart).point(lambda level: 255 * (level == 255)).getbbox()
        if box is None:
            return prill.Step(observation, prill.Action("stop", "stop"))
        x, y = (box[0] + box[2]) / 2 / picture.width, (top + (box[1] + box[3]) / 2) / picture.height
        return prill.Step(observation, prill.Action("click", f"click {self.name}", point=(x, y)))


def scripted_rows(out: Path, tasks: Sequence[str], episodes: int, workers: int) -> Path:
    """Rows of scripted play, as the policy `screen` is asked and answers."""
    played = out / "teacher"
    for task in tasks:
        result = prill.rollout(
            environment=prill.MiniWobConfig(tasks=[task], announce_end=True),
            policy=f"{__file__}:Colour" if task == "click-color" else "scripted",
            seeds=f"{TEACHER}-{TEACHER + episodes - 1}",
            max_steps=1,
            workers=workers,
            output=played,
        )
        print(result)
    verdicts = out / "teacher-verdicts.jsonl"
    labels = {"name": "oracle", "labels": str(played / "labels.jsonl")}
    prill.score(
        prill.ScoreConfig(
            trajectories=[played / "trajectories.jsonl"], output=verdicts, judge=labels
        )
    )
    policy = prill.TeacherConfig.read(POLICY, "policy")
    filtered = prill.FilterConfig(
        trajectories=[played / "trajectories.jsonl"],
        verdicts=[verdicts],
        output=out / "teacher-rows",
        policy=policy,
    )
    if not (out / "teacher-rows").exists():
        print(prill.filter(filtered))
    return out / "teacher-rows" / "sft.jsonl"


def untrained(rows: Path, folder: Path) -> None:
    """A random Qwen3-VL whose tokens are the fixed pieces of the rows, digits and other bytes, with
    its processor.
    """
    mend_torchvision()
    import torch
    import transformers
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    words = tokenizer(pieces(json.loads(line) for line in rows.read_text().splitlines()))
    number = words.convert_tokens_to_ids
    places = {name: number(f"<|{token}|>") for name, token in PLACES.items()}
    config = transformers.Qwen3VLConfig(
        text_config={
            "vocab_size": len(words),
            "hidden_size": 128,
            "intermediate_size": 384,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 32,
            "max_position_embeddings": 512,
            "bos_token_id": None,
            "eos_token_id": number("<|im_end|>"),
            "pad_token_id": number("<|endoftext|>"),
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [8, 4, 4],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": 96,
            "intermediate_size": 192,
            "num_heads": 4,
            "in_channels": 3,
            "patch_size": PATCH,
            "spatial_merge_size": 2,
            "temporal_patch_size": 1,
            "out_hidden_size": 128,
            "num_position_embeddings": 100,
            "deepstack_visual_indexes": [],
        },
        tie_word_embeddings=False,
        **places,
    )
    torch.manual_seed(0)
    model = transformers.Qwen3VLForConditionalGeneration(config)
    # Of the size of a patch's own numbers; the usual 0.02 would be lost beside them.
    torch.nn.init.normal_(model.model.visual.pos_embed.weight, std=0.3)
    pictures = Qwen2VLImageProcessorPil(
        patch_size=PATCH,
        merge_size=2,
        temporal_patch_size=1,
        image_mean=[1.0] * 3,  # white, which most of a page is, is nought
        image_std=[0.5] * 3,
        size={"shortest_edge": 4 * PATCH**2, "longest_edge": PIXELS},
    )
    films = transformers.Qwen3VLVideoProcessor(patch_size=PATCH)
    reader = transformers.Qwen3VLProcessor(
        image_processor=pictures, tokenizer=words, video_processor=films, chat_template=TEMPLATE
    )
    reader.save_pretrained(folder)
    model.save_pretrained(folder)


PLACES = {
    "image_token_id": "image_pad",
    "video_token_id": "video_pad",
    "vision_start_token_id": "vision_start",
    "vision_end_token_id": "vision_end",
}


_FIXED = {"user": r"[^\d\n]+", "assistant": r"\D+"}


def pieces(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the rows have between numbers, longest first: each is one token."""
    found = {"system", "user", "assistant"}
    for row in rows:
        for turn in (*row["prompt"], *row["completion"]):
            content = turn["content"]
            for part in [{"text": content}] if isinstance(content, str) else content:
                text = part.get("text") or ""
                found.update(
                    [text] if turn["role"] == "system" else re.findall(_FIXED[turn["role"]], text)
                )
    return sorted(
        (piece for piece in found if len(piece) > 1), key=lambda piece: (-len(piece), piece)
    )


def tokenizer(whole: Sequence[str]) -> Any:
    """Builds a tokenizer with bytes and these pieces of text as tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bare = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate([*SPECIAL, *alphabet])}, merges=[]
        )
    )
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bare.decoder = decoders.ByteLevel()
    bare.add_special_tokens(SPECIAL)
    bare.add_tokens([AddedToken(piece, normalized=False) for piece in whole])
    made = PreTrainedTokenizerFast(
        tokenizer_object=bare,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=SPECIAL[1:],
        model_max_length=512,
    )
    made.chat_template = TEMPLATE
    return made


def told(file: Path) -> Any:
    """Writes every hundredth step of a training, with its loss, into a file."""

    def step(progress: Any) -> None:
        if progress.step % 100 == 0 or progress.step == progress.steps:
            with file.open("a") as log:
                log.write(f"step {progress.step} of {progress.steps}: loss {progress.loss}\n")

    return step


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    raise SystemExit(main())
