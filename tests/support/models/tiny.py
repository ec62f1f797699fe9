"""Makes tiny random models of real architectures, with tokenizers and processors, in a second and
without downloads.

    model, reader = build("qwen2_5_vl")
    folder = save(model, reader, tmp_path / "tiny")

`served` makes the smallest size that vLLM takes on a CPU: heads of 64 numbers, and a vocabulary
that is a multiple of 64. The fixture `tiny_model` of tests/conftest.py gives the folder of one, for
tests of any room.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

KINDS = ("qwen2", "qwen2_5_vl", "qwen3_vl")
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
# Trainers compute the loss between the generation marks: the reply and its end token.
TEMPLATE = """\
{%- macro words(content) -%}
{%- if content is string -%}{{ content }}
{%- else -%}
{%- for part in content -%}
{%- if part.type == 'text' -%}{{ part.text }}
{%- else -%}<|vision_start|><|image_pad|><|vision_end|>
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- for turn in messages -%}
{{ '<|im_start|>' + turn.role + '\n' }}
{%- if turn.role == 'assistant' -%}
{% generation %}{{ words(turn.content) + '<|im_end|>' }}{% endgeneration %}
{%- else -%}
{{ words(turn.content) + '<|im_end|>' }}
{%- endif -%}
{{ '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""


def tokenizer(
    lines: Sequence[str] = ("Thoughts: it is done.\nStatus: success", "Status: failure"),
    size: int = 400,
) -> Any:
    """Returns a tokenizer of `size` tokens: bytes, pieces of the `lines`, and special tokens. It
    can encode any text.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bare.train_from_iterator([*lines] * 10, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=bare,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL[1:]),
        model_max_length=4096,
    )
    made.chat_template = TEMPLATE
    return made


def build(
    kind: str,
    *,
    served: bool = False,
    window: int = 4096,
    seed: int = 0,
    lines: Sequence[str] = (),
    tokens: int = 400,
) -> tuple[Any, Any]:
    """Returns an untrained model of two layers, and its tokenizer or processor. Vision models need
    torchvision.
    """
    import torch
    import transformers

    words = tokenizer(lines, tokens) if lines else tokenizer()
    size = -(-len(words) // 64) * 64 if served else len(words)
    width, head = (256, 64) if served else (64, 16)
    text: dict[str, Any] = {
        "vocab_size": size,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 2,
        "num_attention_heads": width // head,
        "num_key_value_heads": 2,
        "max_position_embeddings": window,
        "initializer_range": 0.2,  # wide enough that the output depends on the input
        "bos_token_id": None,
        "eos_token_id": words.convert_tokens_to_ids("<|im_end|>"),
        "pad_token_id": words.convert_tokens_to_ids("<|endoftext|>"),
    }
    torch.manual_seed(seed)
    if kind == "qwen2":
        config = transformers.Qwen2Config(**text, tie_word_embeddings=False)
        return transformers.Qwen2ForCausalLM(config).eval(), words
    third = kind == "qwen3_vl"
    family = {"qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}[kind]
    patch = 16 if third else 14
    # The three components of a position (time, height, width) share half a head.
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": 1e6,
        "mrope_section": [head // 4, head // 8, head // 8],
    }
    if third:
        rope["mrope_interleaved"] = True
        text["head_dim"] = head
    eyes: dict[str, Any] = {
        "depth": 2,
        "hidden_size": width // 2,
        "intermediate_size": width // 2,
        "num_heads": 2,
        "in_channels": 3,
        "patch_size": patch,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": width,
        "initializer_range": 0.2,
    }
    eyes |= (
        {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
        if third
        else {"window_size": 8 * patch, "fullatt_block_indexes": [1]}
    )
    config = getattr(transformers, f"{family}Config")(
        text_config={**text, "rope_parameters": rope},
        vision_config=eyes,
        tie_word_embeddings=False,
        **{
            f"{name}_token_id": words.convert_tokens_to_ids(token)
            for name, token in (
                ("image", "<|image_pad|>"),
                ("video", "<|video_pad|>"),
                ("vision_start", "<|vision_start|>"),
                ("vision_end", "<|vision_end|>"),
            )
        },
    )
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    return model, _processor(family, words, patch)


def _processor(family: str, words: Any, patch: int) -> Any:
    import transformers
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    size = {"shortest_edge": 56 * 56, "longest_edge": 224 * 224}  # pixels in total, not per side
    pictures = Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=2, temporal_patch_size=2, size=size
    )
    films = getattr(
        transformers, f"{'Qwen3VL' if family == 'Qwen3VL' else 'Qwen2VL'}VideoProcessor"
    )(patch_size=patch)
    return getattr(transformers, f"{family}Processor")(
        image_processor=pictures, tokenizer=words, video_processor=films, chat_template=TEMPLATE
    )


def glm4v(folder: Path) -> Path:
    """Writes the configuration and the tokenizer of a tiny GLM-4V, as vLLM reads them, in the size
    that it takes on a CPU; vLLM draws the weights (`--load-format dummy`).

    transformers has no code for it, so there are no weights to save.
    """
    from transformers import AddedToken

    words = tokenizer()
    begin, end = "<|begin_of_image|>", "<|end_of_image|>"
    words.add_tokens([AddedToken(word, special=True) for word in (begin, end)])
    words.save_pretrained(folder)
    ids = words.convert_tokens_to_ids
    settings = {
        "model_type": "chatglm",
        "architectures": ["GLM4VForCausalLM"],
        "num_layers": 2,
        "padded_vocab_size": -(-len(words) // 64) * 64,
        "hidden_size": 256,
        "ffn_hidden_size": 512,
        "kv_channels": 64,
        "num_attention_heads": 4,
        "seq_length": 1024,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "add_qkv_bias": True,
        "original_rope": True,
        "tie_word_embeddings": False,
        "pad_token_id": ids("<|endoftext|>"),
        "eos_token_id": ids("<|im_end|>"),
        "boi_token_id": ids(begin),
        "eoi_token_id": ids(end),
        "torch_dtype": "bfloat16",
        "vision_config": {
            "dropout_prob": 0.0,
            "hidden_act": "gelu",
            "hidden_size": 128,
            "image_size": 56,
            "in_channels": 3,
            "intermediate_size": 128,
            "layer_norm_eps": 1e-6,
            "num_heads": 2,
            "num_hidden_layers": 2,
            "num_positions": 17,
            "patch_size": 14,
            "scaling_factor": 8,
        },
    }
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def taught(model: Any, reader: Any, text: str) -> Any:
    """Returns a model of `build("qwen2")` that answers every input with this text, whose tokens
    must all differ.
    """
    import torch

    said = reader("\n" + text + "<|im_end|>")["input_ids"]  # a question ends with a line break
    assert len(set(said)) == len(said)
    with torch.no_grad():
        for layer in model.model.layers:  # only the last token has an effect
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.lm_head.weight.zero_()
        model.lm_head.weight[said[1:]] = model.model.embed_tokens.weight[said[:-1]]
    return model


def save(model: Any, reader: Any, folder: Path) -> Path:
    """Saves the model to the folder as `save_pretrained` does, and returns the folder."""
    model.save_pretrained(folder)
    reader.save_pretrained(folder)
    return folder
