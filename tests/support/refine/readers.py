"""Prints what a trainer reads in folders of rows. It runs in a Python that has the trainer.

    python tests/support/refine/readers.py llama-factory FOLDER

FOLDER holds the folders `text` and `images`, as exported. The output is JSON: the rows, by folder
and type.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.support.models.tiny import SPECIAL

Read = dict[str, list[dict[str, Any]]]
UNLEARNED, SIDE, PICTURE = -100, 56, "[picture]"

QWEN = (
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n"
    "{% for part in turn.content %}{% if part.type == 'image' "
    "%}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}{% endfor "
    "%}<|im_end|>\n"
    "{% endfor %}"
)


def tokenizer() -> Any:
    """Returns a byte tokenizer, so that its output can be decoded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    plain.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )


def picture_processor() -> Any:
    """Returns an image processor that makes four tokens of each image, as in Qwen2-VL."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil(min_pixels=SIDE * SIDE, max_pixels=SIDE * SIDE)


def chat_processor(words: Any) -> Any:
    """Returns the processor of Qwen2-VL without its video part, which needs torchvision."""
    from transformers import ProcessorMixin, Qwen2VLProcessor

    class Pictures(Qwen2VLProcessor):  # type: ignore[misc]
        def __init__(
            self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None
        ) -> None:
            self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
            self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
            self.video_token_id = tokenizer.convert_tokens_to_ids(self.video_token)
            ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)

    return Pictures(picture_processor(), words, chat_template=QWEN)


def color(image: Any) -> list[int]:
    """Returns the colour of the first pixel, which identifies an image."""
    return list(image.convert("RGB").getpixel((0, 0)))


def turns(text: str) -> list[list[str]]:
    """Returns role and text of each turn of a ChatML conversation, with `[picture]` for image
    tokens.
    """
    marked = re.sub(r"<\|vision_start\|>(<\|image_pad\|>)+<\|vision_end\|>", PICTURE, text)
    return [
        list(turn)
        for turn in re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", marked, re.DOTALL)
    ]


def learned(words: Any, labels: list[int]) -> str:
    """Returns the text that the loss covers."""
    return (
        str(words.decode([label for label in labels if label != UNLEARNED]))
        .strip()
        .removesuffix("<|im_end|>")
    )


def llama_factory(folder: Path) -> Read:
    audio = ModuleType("torchaudio")  # imported for audio
    audio.__spec__ = ModuleSpec("torchaudio", None)
    sys.modules["torchaudio"] = audio
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args
    from PIL import Image

    words = tokenizer()
    pictures = SimpleNamespace(image_processor=picture_processor(), video_processor=object())
    read = {}
    # The stage `rm` selects the pair loader, because the trainer of pairs uses the one of reward
    # models.
    for kind, stage in (("sft", "sft"), ("kto", "kto"), ("dpo", "rm")):
        model, data, training, _, _ = get_train_args(
            {
                "stage": kind,
                "do_train": True,
                "dataset": f"prill_{kind}",
                "dataset_dir": str(folder),
                "template": "qwen2_vl",
                "mask_history": kind == "sft",
                "model_name_or_path": "none",
                "output_dir": str(folder.parent / "out"),
                "cache_dir": str(folder.parent / "cache"),
                "report_to": "none",
            }
        )
        template = get_template_and_fix_tokenizer(words, data)
        rows = get_dataset(template, model, data, training, stage, words, pictures)["train_dataset"]
        first = "chosen_" if kind == "dpo" else ""
        read[kind] = [
            {
                "turns": turns(words.decode(row[f"{first}input_ids"])),
                "learned": learned(words, row[f"{first}labels"]),
                "rejected": learned(words, row["rejected_labels"]) if kind == "dpo" else None,
                "label": row.get("kto_tags"),
                "images": [color(Image.open(image)) for image in row["images"] or []],
            }
            for row in rows
        ]
    return read


def swift(folder: Path) -> Read:
    os.environ["ROOT_IMAGE_DIR"] = str(folder)
    os.environ["MODELSCOPE_CACHE"] = str(folder.parent / "cache")
    from swift.dataset import load_dataset
    from swift.template import get_template

    words = tokenizer()
    words.model_info = SimpleNamespace(
        config=None, task_type="causal_lm", max_model_len=4096, model_dir=None
    )
    words.model_meta = SimpleNamespace(is_multimodal=True, template="chatml")
    read = {}
    for kind, mode in (("sft", "train"), ("kto", "kto"), ("dpo", "rlhf")):
        template = get_template(words, template_type="chatml")
        template.set_mode(mode)
        rows, _ = load_dataset(str(folder / f"{kind}.jsonl"), strict=True)
        read[kind] = []
        for row in rows:
            seen = template.encode(row, return_template_inputs=True)
            first = "" if kind == "sft" else "chosen_"
            read[kind].append(
                {
                    # This template leaves the image placeholder unchanged.
                    "turns": turns(
                        words.decode(seen[f"{first}input_ids"]).replace("<image>", PICTURE)
                    ),
                    "learned": learned(words, seen[f"{first}labels"]),
                    "rejected": learned(words, seen["rejected_labels"]) if kind == "dpo" else None,
                    "label": seen.get("label"),
                    "images": [color(image) for image in seen["template_inputs"].images],
                }
            )
    return read


def axolotl(folder: Path) -> Read:
    os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"
    from axolotl.processing_strategies import get_processing_strategy
    from axolotl.utils.collators.mm_chat import MultiModalChatDataCollator
    from axolotl.utils.data.rl import prepare_preference_datasets
    from axolotl.utils.data.sft import prepare_datasets
    from axolotl.utils.dict import DictDefault
    from axolotl.utils.schemas.enums import RLType
    from PIL import Image

    words = tokenizer()
    words.save_pretrained(folder.parent / "tokenizer")
    (folder.parent / "tokenizer/config.json").write_text('{"model_type": "llama"}')
    types = {"sft": "chat_template", "kto": "chatml.argilla_chat", "dpo": "chat_template.default"}
    os.chdir(folder)  # image paths are relative to it
    read = {}
    for kind in ("sft",) if "images" in folder.name else types:
        training = {"message_field_training": "training"} if kind == "sft" else {}
        config = DictDefault(
            {
                "datasets": [
                    {"path": f"{kind}.jsonl", "ds_type": "json", "type": types[kind], **training}
                ],
                "rl": None if kind == "sft" else RLType(kind),
                "base_model": str(folder.parent / "tokenizer"),
                "tokenizer_config": str(folder.parent / "tokenizer"),
                "chat_template": "chatml",
                "sequence_len": 4096,
                "dataset_prepared_path": str(folder.parent / "prepared"),
                "skip_prepare_dataset": "images" in folder.name,
                "val_set_size": 0,
                "max_steps": 1,
                "num_epochs": 1,
                "batch_size": 1,
                "micro_batch_size": 1,
                "seed": 0,
            }
        )
        rows = (
            prepare_datasets(config, words)[0]
            if kind == "sft"
            else prepare_preference_datasets(config, words)[0]
        )
        if kind == "sft" and "images" in folder.name:
            chat = chat_processor(words)
            # A batch for each row, made by the trainer's collator.
            collate = MultiModalChatDataCollator(
                words, get_processing_strategy(chat, QWEN, "qwen2_vl")
            )
            seen = [(collate([row]), row["messages"]) for row in rows]
            read[kind] = [
                {
                    "turns": turns(words.decode(batch["input_ids"][0])),
                    "learned": learned(words, batch["labels"][0].tolist()),
                    "images": [
                        color(Image.open(part["path"]))
                        for turn in said
                        for part in turn["content"]
                        if part.get("path")
                    ],
                }
                for batch, said in seen
            ]
        elif kind == "sft":
            read[kind] = [
                {
                    "turns": turns(words.decode(row["input_ids"])),
                    "learned": learned(words, row["labels"]),
                    "images": [],
                }
                for row in rows
            ]
        else:
            answer = "chosen" if kind == "dpo" else "completion"
            read[kind] = [
                {
                    "turns": turns(
                        row["prompt"] + row[answer].removesuffix("<|im_end|>") + "<|im_end|>"
                    ),
                    "learned": row[answer].removesuffix("<|im_end|>"),
                    "rejected": row["rejected"].removesuffix("<|im_end|>")
                    if kind == "dpo"
                    else None,
                    "label": row.get("label"),
                    "images": [],
                }
                for row in rows
            ]
    return read


READERS: dict[str, Callable[[Path], Read]] = {
    "llama-factory": llama_factory,
    "ms-swift": swift,
    "axolotl": axolotl,
}


def main(name: str, folder: Path) -> None:
    """Prints what that trainer reads."""
    print("\n" + json.dumps({part: READERS[name](folder / part) for part in ("text", "images")}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
