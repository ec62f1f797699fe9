"""Makes a ranker that can be trained on a CPU: a small DeBERTa-v2 with random weights, and a
tokenizer trained on the training turns.

Run: PYTHONPATH=. python examples/self_map/small_ranker.py train.jsonl DIR --seed 0
"""

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from prill.io.store import iter_trajectories
from prill.papers.mind2web.pages.state import read_state
from prill.papers.mind2web.pages.tree import RecordedPage, ranker_query
from tests.support.small_models import small_encoder

TURNS = 150  # turns for training the tokenizer
# few enough that many words of the training pages have several pieces, as unseen words do
PIECES = 900


def lines(gold: Path) -> Iterator[str]:
    """Yields the ranker's input for these turns."""
    for turn in islice(iter_trajectories(gold, on_error="skip"), TURNS):
        for step in turn.steps:
            state = read_state(step.observation.text or "")
            page = RecordedPage(state.page)
            yield ranker_query(turn.task.goal, state.past)
            yield from map(page.candidate_text, state.candidates[:10])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gold", type=Path, metavar="train.jsonl")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default: 0)")
    options = parser.parse_args()
    small_encoder(
        options.folder,
        lines(options.gold),
        vocabulary=PIECES,
        width=64,
        layers=2,
        window=160,
        seed=options.seed,
    )


if __name__ == "__main__":
    main()
