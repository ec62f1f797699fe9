"""Makes small models with random weights, of the architectures of rankers and planners, in a second
from lines of text.

    small_encoder(folder, lines)  # a DeBERTa-v2 with one output: prill train ranker --model FOLDER
    small_t5(folder, lines)       # an encoder-decoder model: prill train planner --model FOLDER

Nothing is downloaded, and the models are untrained. Their tokenizers have the words of the lines,
and bytes for all other text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prill.errors import MissingExtraError

_PAD, _END, _UNKNOWN, _START, _MASK = "<pad>", "</s>", "<unk>", "<s>", "<mask>"


def small_tokenizer(lines: Iterable[str], *, size: int = 2000, pairs: bool = False) -> Any:
    """Returns a byte-level tokenizer trained on the lines, which can encode any text. `pairs` is
    for an encoder with two inputs.
    """
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        raise MissingExtraError(error.name or "transformers", "local") from None
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bare.decoder = decoders.ByteLevel()
    special = [_PAD, _END, _UNKNOWN, _START, _MASK]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, show_progress=False, initial_alphabet=alphabet
    )
    bare.train_from_iterator(lines, trainer)
    ids = [(_END, bare.token_to_id(_END)), (_START, bare.token_to_id(_START))]
    if pairs:
        bare.post_processor = processors.TemplateProcessing(
            single=f"{_START} $A {_END}",
            pair=f"{_START} $A {_END} $B:1 {_END}:1",
            special_tokens=ids,
        )
    else:
        bare.post_processor = processors.TemplateProcessing(single=f"$A {_END}", special_tokens=ids)
    inputs = (
        ["input_ids", "token_type_ids", "attention_mask"]
        if pairs
        else ["input_ids", "attention_mask"]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bare,
        pad_token=_PAD,
        eos_token=_END,
        unk_token=_UNKNOWN,
        model_input_names=inputs,
        clean_up_tokenization_spaces=False,
        **({"cls_token": _START, "sep_token": _END, "mask_token": _MASK} if pairs else {}),
    )


def small_encoder(
    folder: str | os.PathLike[str],
    lines: Iterable[str],
    *,
    vocabulary: int = 2000,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    window: int = 512,
    seed: int = 0,
) -> Path:
    """Makes a small DeBERTa-v2 with random weights, which ranks at random.

    Args:
        folder: The folder to save it to.
        lines: The texts that its tokenizer learns its words from.
        vocabulary: The most tokens of the tokenizer.
        width: The size of a hidden state.
        layers: The number of layers.
        heads: The number of attention heads of a layer. It divides `width`.
        window: The most tokens of an input.
        seed: Draws the weights.

    Returns:
        The folder.
    """
    tokenizer, transformers = _begun(lines, vocabulary, seed, pairs=True)
    config = transformers.DebertaV2Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=window,
        type_vocab_size=2,
        relative_attention=True,
        position_buckets=64,
        max_relative_positions=-1,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=True,
        pad_token_id=tokenizer.pad_token_id,
        num_labels=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pooler_dropout=0.0,
        pooler_hidden_size=width,
    )
    return _saved(transformers.DebertaV2ForSequenceClassification(config), tokenizer, folder)


def small_t5(
    folder: str | os.PathLike[str],
    lines: Iterable[str],
    *,
    vocabulary: int = 2000,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    dropout: float = 0.0,
    seed: int = 0,
) -> Path:
    """Makes a small T5 with random weights, which answers nonsense.

    Args:
        folder: The folder to save it to.
        lines: The texts that its tokenizer learns its words from.
        vocabulary: The most tokens of the tokenizer.
        width: The size of a hidden state.
        layers: The number of layers of the encoder, and of the decoder.
        heads: The number of attention heads of a layer. It divides `width`.
        dropout: The dropout rate in training, in [0, 1).
        seed: Draws the weights.

    Returns:
        The folder.
    """
    tokenizer, transformers = _begun(lines, vocabulary, seed)
    config = transformers.T5Config(
        vocab_size=len(tokenizer),
        d_model=width,
        d_kv=width // heads,
        d_ff=4 * width,
        num_layers=layers,
        num_decoder_layers=layers,
        num_heads=heads,
        dropout_rate=dropout,
        feed_forward_proj="gated-gelu",  # as in Flan-T5
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    return _saved(transformers.T5ForConditionalGeneration(config), tokenizer, folder)


def _begun(
    lines: Iterable[str], vocabulary: int, seed: int, *, pairs: bool = False
) -> tuple[Any, Any]:
    """Returns the tokenizer, and transformers seeded for the next model's weights."""
    tokenizer = small_tokenizer(lines, size=vocabulary, pairs=pairs)
    try:
        import torch

        from prill.models.local.torchvision import mend_torchvision

        mend_torchvision()
        import transformers
    except ImportError as error:
        raise MissingExtraError(error.name or "transformers", "local") from None
    torch.manual_seed(seed)
    return tokenizer, transformers


def _saved(model: Any, tokenizer: Any, folder: str | os.PathLike[str]) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)
