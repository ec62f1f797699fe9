"""A ranker and a planner to train on a CPU: small, of the papers' architectures, their tokenizers learnt from training turns.

The planner's first numbers are not all drawn by chance. It has to learn that an element's words are those that the user said in
this turn or an earlier one; so some heads of its encoder begin by looking at equal words, others at the next and the last few.
Nothing of this knows a word, a page or a task. In a trial on made-up words, names were copied after half the steps.

Run: python examples/self_map/small_models.py train.jsonl DIR 0   (DIR/ranker and DIR/planner, seed 0)
"""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from prill.pages.state import read_state
from prill.pages.tree import Page, ranker_query
from prill.policies.registry import make_policy
from prill.store import BadLine, read_trajectories
from prill.testing import ScriptedModel
from prill.testing.small_models import small_encoder, small_t5

TURNS = 150  # whose words the tokenizers learn
PIECES = 900  # so few that many words of the training pages are made of several pieces, as all new words will be
# Logits: of equal words, of the next or last three, and of a word itself where equal ones are sought.
EQUAL, NEAR, SELF = 9.0, 4.0, -4.0


def lines(gold: Path) -> Iterator[str]:
    """What the models read and write of these turns."""
    teacher: Any = make_policy("mindact", model=ScriptedModel([]), form="generation", history="none")
    turns = (turn for turn in read_trajectories(gold) if not isinstance(turn, BadLine))
    for turn in islice(turns, TURNS):
        for index, step in enumerate(turn.steps):
            messages, answer = teacher.demonstrate(turn, index)
            yield from (part for message in messages for part in message.parts if isinstance(part, str))
            yield answer
            state = read_state(step.observation.text or "")
            page = Page(state.page)
            yield ranker_query(turn.task.goal, state.past)
            yield from map(page.candidate_text, state.candidates[:10])


def look_at_equal_words(folder: Path) -> None:
    """Have the planner's encoder begin with two heads for equal words, and one each for the words after and before."""
    from prill.models.local.torchvision import mend_torchvision

    mend_torchvision()
    import torch
    from transformers import T5ForConditionalGeneration

    model = T5ForConditionalGeneration.from_pretrained(folder)
    width, heads = model.config.d_kv, model.config.num_heads
    after, before = heads - 1, heads - 2
    with torch.no_grad():
        # One table for all layers; its rows are distances: 0 to 15 backwards, from 16 on forwards (T5, relative positions).
        distances = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        forwards = model.config.relative_attention_num_buckets // 2
        distances.zero_()
        distances[1:4, before] = distances[forwards + 1 : forwards + 4, after] = NEAR
        distances[0, :before] = SELF
        for block in model.encoder.block:
            attention = block.layer[0].SelfAttention
            for head in range(heads):
                rows = slice(width * head, width * (head + 1))
                attention.o.weight[:, rows] = attention.v.weight[rows].T
                if head in (after, before):
                    attention.q.weight[rows] *= 0.2
                else:
                    attention.q.weight[rows] = attention.k.weight[rows] * (EQUAL / width)
        for block in model.decoder.block:  # what an answer copies is what is read
            attention = block.layer[1].EncDecAttention
            attention.q.weight.copy_(attention.k.weight * (EQUAL / 2 / width))
            attention.o.weight.copy_(attention.v.weight.T)
    model.save_pretrained(folder)


def main(gold: str, folder: str, seed: str = "0") -> None:
    """Make both models, unless they are there."""
    into = Path(folder)
    if not (into / "planner").is_dir():
        words = list(lines(Path(gold)))
        small_encoder(into / "ranker", words, vocabulary=PIECES, width=64, layers=2, window=160, seed=int(seed))
        made = small_t5(into / "planner.part", words, vocabulary=PIECES, width=64, layers=3, seed=int(seed))
        look_at_equal_words(made)
        made.rename(into / "planner")


if __name__ == "__main__":
    main(*sys.argv[1:])
