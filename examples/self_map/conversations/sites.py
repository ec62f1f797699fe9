"""The generated sites and the invented names in their lists. Names are drawn from a seed and differ
between training and test.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

Half = Literal["train", "test"]
_SITES = Path(__file__).parent / "sites.toml"
_BEGINNINGS = [
    *(
        "Bar",
        "Bel",
        "Bor",
        "Cal",
        "Cor",
        "Dal",
        "Dor",
        "Fal",
        "Fen",
        "Gal",
        "Gor",
        "Hal",
        "Hel",
        "Jor",
        "Kar",
        "Kel",
        "Lar",
    ),
    *(
        "Lun",
        "Mar",
        "Mel",
        "Mor",
        "Nar",
        "Nor",
        "Pal",
        "Per",
        "Rav",
        "Ros",
        "Sal",
        "Sel",
        "Tal",
        "Tor",
        "Ul",
        "Val",
        "Ver",
    ),
    *("Vol", "Win", "Yar", "Zan", "Zel", "Zor"),
]
_ENDINGS = [
    *(
        "ana",
        "aro",
        "bek",
        "bia",
        "ca",
        "dan",
        "dia",
        "do",
        "eka",
        "en",
        "eti",
        "fin",
        "ga",
        "gard",
        "ia",
        "ika",
        "ino",
        "is",
    ),
    *(
        "ka",
        "kov",
        "len",
        "lia",
        "mond",
        "na",
        "nes",
        "nor",
        "obi",
        "on",
        "ora",
        "oss",
        "pa",
        "ric",
        "ro",
        "sa",
        "stad",
        "tea",
    ),
    *("tum", "ula", "vik", "wen"),
]


@dataclass(frozen=True, slots=True)
class Site:
    """A site and its texts; `sites.toml` explains the fields."""

    name: str
    split: Half
    domain: str
    subdomain: str
    things: tuple[str, ...]
    sections: tuple[str, ...]
    fields: tuple[str, ...]
    menus: tuple[str, ...]
    submit: str
    extras: tuple[str, ...]


@cache
def sites() -> tuple[Site, ...]:
    """Returns all sites, in the order of their file."""
    read = tomllib.loads(_SITES.read_text(encoding="utf-8"))
    return msgspec.convert(read["site"], tuple[Site, ...])


@cache
def names(half: Half) -> tuple[str, ...]:
    """Returns the invented names of one half: 1,200 for training, 400 for test, without overlap.
    Both halves use the same syllables.
    """
    pairs = [a + b for a, b in product(_BEGINNINGS, _ENDINGS)]
    Random("names").shuffle(pairs)
    return tuple(pairs[:1200] if half == "train" else pairs[1200:])
