"""The generated sites and the names of what they list: invented, drawn from a number, and not the
same in training and test.
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
    """A site and its words, as `sites.toml` explains them."""

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
    """All sites, in the order of their file."""
    read = tomllib.loads(_SITES.read_text(encoding="utf-8"))
    return msgspec.convert(read["site"], tuple[Site, ...])


@cache
def names(half: Half) -> tuple[str, ...]:
    """The invented names of one half: 1,200 for training, 400 for test, none in both. Their
    syllables are the same.
    """
    pairs = [a + b for a, b in product(_BEGINNINGS, _ENDINGS)]
    Random("names").shuffle(pairs)
    return tuple(pairs[:1200] if half == "train" else pairs[1200:])
