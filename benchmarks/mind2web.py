"""Pages a second and memory of cutting recorded pages around candidates, beside lxml that only
parses them.

    python benchmarks/mind2web.py

The pages are made here, in the sizes of Mind2Web's: thousands of nodes, 100 to 400 KB. Seconds are
of the processor. What is said of a page: lxml parsing it;
`RecordedPage` reading it; `RecordedPage` and one view around 50 candidates (an agent's step);
`RecordedPage` and the
ranker's text of every candidate, one in ten nodes (a step for a ranker).
"""

import argparse
import random
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

from lxml import etree

from prill.papers.mind2web.pages.tree import RecordedPage

_WORDS = [
    "sale",
    "search",
    "menu",
    "flight",
    "hotel",
    "car",
    "zip",
    "code",
    "date",
    "city",
    "offer",
    "price",
    "cart",
    "account",
    "help",
    "store",
    "pickup",
    "delivery",
]


def page(nodes: int, seed: int) -> tuple[str, list[str]]:
    """A page of about that many nodes, and its candidates."""
    draw = random.Random(seed)
    parts, open_tags, ids = (
        ['<html backend_node_id="0"><body backend_node_id="1">'],
        ["html", "body"],
        [],
    )
    for node in range(2, nodes):
        tag = draw.choice(("div", "div", "span", "ul", "li", "a", "button", "input"))
        words = " ".join(draw.choices(_WORDS, k=3))
        parts.append(
            f'<{tag} backend_node_id="{node}" class="{words}"'
            + (f' aria_label="{words}"' if tag == "a" else "")
            + ">"
        )
        if tag in ("a", "button", "span"):
            parts.append(f'<text backend_node_id="{node}t">{words}</text>')
        if tag in ("a", "button", "input"):
            ids.append(str(node))
        if tag in ("div", "ul", "li") and len(open_tags) < 25:
            open_tags.append(tag)
        else:
            parts.append(f"</{tag}>")
        while len(open_tags) > 2 and draw.random() < 0.45:
            parts.append(f"</{open_tags.pop()}>")
    parts += [f"</{tag}>" for tag in reversed(open_tags)]
    return "\n".join(parts), draw.sample(ids, min(len(ids), nodes // 10))


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Of the processor, for one time, the best of three rounds."""
    rounds = []
    for _ in range(3):
        begun = time.process_time()
        for _ in range(repeat):
            work()
        rounds.append((time.process_time() - begun) / repeat)
    return min(rounds)


def peak(work: Callable[[], object]) -> float:
    """The most memory of Python's at one time, in MB; libxml2's own is not in it."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 1e6


def texts(html: str, candidates: list[str]) -> None:
    """Returns the ranker's text of every candidate."""
    read = RecordedPage(html)
    for id in candidates:
        read.candidate_text(id)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2_000, 5_000, 10_000])
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    print(
        "| nodes | KB | what | pages/s | times lxml's parsing | peak MB |\n"
        "|---|---|---|---|---|---|"
    )
    for nodes in args.nodes:
        html, candidates = page(nodes, seed=nodes)
        works: dict[str, Callable[[], object]] = {
            "lxml parses": partial(etree.fromstring, html),
            "RecordedPage": partial(RecordedPage, html),
            "Page, view of 50": lambda html=html, ids=candidates[:50]: RecordedPage(html).view(ids),
            f"Page, {len(candidates)} ranker texts": partial(texts, html, candidates),
        }
        alone = seconds(works["lxml parses"], args.repeat)
        for name, work in works.items():
            took = alone if name == "lxml parses" else seconds(work, args.repeat)
            print(
                f"| {nodes} | {len(html) // 1000} | {name} | {1 / took:.1f} | {took / alone:.1f} "
                f"| {peak(work):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
