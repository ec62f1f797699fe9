"""Generates conversations in the format of MT-Mind2Web: sites, pages, instructions that refer to
earlier turns, and the right actions.

A conversation has three to five turns, each of one to three actions. The first names a thing ("Open
the port Barana"). Later ones are standalone or refer back: "the same port again", "use that port
under Arriving at as well", "now the other port I mentioned". Their element or value follows only
from an earlier turn, because the page lists four names of the same type in random order. The field
`refers` of a turn holds its type of reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

from pages import GeneratedPage, Key, page
from sites import Half, Site, names, sites

Split = Literal["train", "dev", "test_website"]
Refers = Literal["none", "same", "other"]
# the default number of conversations of each split
COUNTS: dict[Split, int] = {"train": 180, "dev": 20, "test_website": 60}

_PICK = {
    "none": (
        "Open the {thing} {name}",
        "Show me the {thing} {name}",
        "I want to see the {thing} {name}",
        "Find the {thing} {name}, please",
    ),
    "both": (
        "I wonder about the {thing} {name} or {other}, open {name} first",
        "Either the {thing} {name} or {other}: show me {name}",
    ),
    "same": (
        "Open the same {thing} again",
        "Show me that {thing} once more",
        "Back to this {thing}, please",
        "I want to see the same {thing}",
    ),
    "other": (
        "Now the other {thing} I mentioned",
        "And the other {thing}, please",
        "Show me the other {thing} instead",
    ),
}
_WRITE = {
    "none": (
        "Put the {thing} {name} under {label}",
        "Enter the {thing} {name} for {label}",
        "Under {label}, use the {thing} {name}",
    ),
    "same": (
        "Use that {thing} under {label} as well",
        "The same {thing} for {label}",
        "Put this {thing} under {label}, too",
    ),
    "other": (
        "Put the other {thing} under {label}",
        "Under {label}, use the other {thing} I mentioned",
    ),
}
_THERE = ("In {section}: ", "Under {section}. ", "Go to {section}. ")
# names in a list: as few as can still be confused, to keep inputs short
_LISTED = 4
_SUBMIT = (", then start", " and send it off", ", and go ahead")
_PLAIN = ("Go to {section}", "Take me to {section}", "What is there under {section}?")


@dataclass(slots=True)
class _Mentioned:
    """The earlier mentions of a thing: the name that was acted on, another name that was only
    mentioned, and their position.
    """

    name: str
    other: str | None
    turn: str


@dataclass(slots=True)
class _Talk:
    site: Site
    chance: Random
    pool: tuple[str, ...]
    nodes: int
    id: str
    mentioned: dict[str, _Mentioned] = field(default_factory=dict)
    # both names were acted on, so "the same" would be ambiguous
    spent: set[str] = field(default_factory=set)
    turns: list[dict[str, Any]] = field(default_factory=list)

    def turn(self, refers: Refers) -> None:
        """Adds a turn with this type of reference if it is unambiguous, else a standalone turn."""
        known = {thing: said for thing, said in self.mentioned.items() if thing not in self.spent}
        both = [thing for thing, said in known.items() if said.other]
        fresh = [thing for thing in self.site.things if thing not in self.mentioned]
        if refers == "other" and both:
            self.named(self.chance.choice(both), "other")
        elif refers != "none" and known:
            self.named(self.chance.choice(list(known)), "same")
        elif fresh:
            self.named(self.chance.choice(fresh), "none")
        else:
            self.plain()

    def plain(self) -> None:
        section = self.chance.choice(self.site.sections)
        self.add(
            self.chance.choice(_PLAIN).format(section=section),
            [self.step(("section", section), None, "CLICK")],
            "none",
            None,
        )

    def named(self, thing: str, refers: Refers) -> None:
        """Adds a turn about one name, which is opened, entered or selected, with optional section
        and button actions.
        """
        chance, said = self.chance, self.mentioned.get(thing)
        spoken = {said.name, said.other} if said else set()
        fresh = [name for name in chance.sample(self.pool, 4) if name not in spoken]
        if said is None:
            name, other = fresh[0], fresh[1] if chance.random() < 0.6 else None
        elif refers == "same":
            name, other = said.name, said.other
        else:
            assert said.other is not None
            name, other = said.other, None
        kind = chance.choices(("name", "field", "menu"), (6, 3, 1) if said is None else (5, 3, 2))[
            0
        ]
        also = [
            one
            for one in (name, other or (said.other if said else None), said.name if said else None)
            if one
        ]
        section = chance.choice(self.site.sections) if chance.random() < 0.12 else None
        steps = [self.step(("section", section), None, "CLICK")] if section else []
        words = chance.choice(_THERE).format(section=section) if section else ""
        if kind == "name":
            asked = _PICK["both"] if refers == "none" and other else _PICK[refers]
            words += chance.choice(asked).format(thing=thing, name=name, other=other)
            steps.append(self.step(("name", name), (thing, also), "CLICK", section=section))
        else:
            other = None if refers == "none" else other
            label = chance.choice(self.site.fields if kind == "field" else self.site.menus)
            words += chance.choice(_WRITE[refers]).format(thing=thing, name=name, label=label)
            op = "TYPE" if kind == "field" else "SELECT"
            steps.append(self.step((kind, label), (thing, also), op, value=name, section=section))
            if chance.random() < 0.25:
                words += chance.choice(_SUBMIT)
                steps.append(
                    self.step(("submit", self.site.submit), (thing, also), "CLICK", section=section)
                )
        back = said.turn if said and refers != "none" else None
        turn = self.add(words, steps, refers, back)
        if said is None:
            self.mentioned[thing] = _Mentioned(name, other, turn)
        elif refers == "other":
            self.spent.add(thing)

    def step(
        self,
        key: Key,
        about: tuple[str, list[str]] | None,
        op: str,
        *,
        value: str = "",
        section: str | None = None,
    ) -> dict[str, Any]:
        """Returns one action and its page, which lists the turn's names among others of the same
        type.
        """
        chance = self.chance
        others = [name for name in chance.sample(self.pool, 60)]
        listed, offered = [], {}
        for thing in chance.sample(self.site.things, 2 if about is None else 3):
            if about is None or thing == about[0]:
                own = about[1] if about else []
                if about is None and thing in self.mentioned:
                    own = [self.mentioned[thing].name]
                found = _filled_up(own, others)
                chance.shuffle(found)
                listed.append((thing, found))
            elif chance.random() < 0.5:
                # The page also offers a thing of an earlier turn, so that a mention alone does not
                # identify the target.
                own = [self.mentioned[thing].name] if thing in self.mentioned else []
                found = _filled_up(own, others)
                chance.shuffle(found)
                listed.append((thing, found))
        for label in self.site.menus:
            options = _filled_up(about[1] if key == ("menu", label) and about else [], others)
            chance.shuffle(options)
            offered[label] = options
        made = page(
            self.site,
            listed,
            offered,
            chance,
            section=section or chance.choice(self.site.sections),
            nodes=self.nodes,
        )
        return _record(made, key, op, value)

    def add(self, words: str, steps: list[dict[str, Any]], refers: Refers, back: str | None) -> str:
        turn = f"{self.id}-{len(self.turns)}"
        for number, step in enumerate(steps):
            step["action_uid"] = f"{turn}-{number}"
        self.turns.append(
            {
                "annotation_id": turn,
                "confirmed_task": words,
                "action_reprs": [step.pop("repr") for step in steps],
                "actions": steps,
                "refers": refers,
                "refers_to": back,
            }
        )
        return turn


def _filled_up(own: list[str], others: list[str]) -> list[str]:
    """Returns enough names for a list, including these."""
    found = list(dict.fromkeys(own))
    return found + [others.pop() for _ in range(_LISTED - len(found))]


_ROLES = {
    "section": "link",
    "name": "link",
    "extra": "link",
    "field": "textbox",
    "menu": "combobox",
    "submit": "button",
}


def _record(made: GeneratedPage, key: Key, op: str, value: str) -> dict[str, Any]:
    right = made.ids[key]
    positives = [
        one | {"is_original_target": True, "is_top_level_target": True}
        for one in made.candidates
        if one["backend_node_id"] == right
    ]
    return {
        "operation": {"op": op, "original_op": op, "value": value},
        "raw_html": "",
        "cleaned_html": made.html,
        "pos_candidates": positives,
        "neg_candidates": [one for one in made.candidates if one["backend_node_id"] != right],
        "repr": f"[{_ROLES[key[0]]}]  {key[1]} -> {op}" + (f": {value}" if value else ""),
    }


def conversations(
    split: Split = "train", count: int | None = None, *, seed: int = 0, nodes: int = 0
) -> Iterator[dict[str, Any]]:
    """Generates conversations with generated websites, as records of MT-Mind2Web. A seed gives the
    same ones on every machine.

    Args:
        split: `train` and `dev` are of the same sites, `test_website` of others, with other words
            and names.
        count: How many. None: that of `COUNTS`.
        seed: Draws them.
        nodes: The least nodes of a page, about; 0: about 150.

    Yields:
        The records.
    """
    half: Half = "test" if split == "test_website" else "train"
    own = [site for site in sites() if site.split == half]
    for number in range(COUNTS[split] if count is None else count):
        chance = Random(f"{seed} {split} {number}")
        site = own[number % len(own)]
        talk = _Talk(site, chance, names(half), nodes, f"{split}-{seed}-{number}")
        talk.turn("none")
        for _ in range(chance.randrange(2, 5)):
            talk.turn(chance.choices(("none", "same", "other"), (35, 40, 25))[0])
        yield {
            "task_id": talk.id,
            "website": site.name,
            "domain": site.domain,
            "subdomain": site.subdomain,
            "turns": talk.turns,
        }


def write_conversations(
    folder: Path,
    *,
    seed: int = 0,
    nodes: int = 0,
    counts: dict[Split, int] | None = None,
    each: int = 60,
) -> dict[Split, list[Path]]:
    """Writes conversations to `train/train_0.json` and so on.

    Args:
        folder: The folder to write to.
        seed: Draws them.
        nodes: The least nodes of a page, about; 0: about 150.
        counts: How many conversations of each split. None, or a split that it lacks: that of
            `COUNTS`.
        each: How many conversations a file holds.

    Returns:
        The files of each split.
    """
    written: dict[Split, list[Path]] = {}
    for split, count in (COUNTS | (counts or {})).items():
        made = conversations(split, count, seed=seed, nodes=nodes)
        written[split] = []
        for number in range(-(-count // each)):
            path = folder / split / f"{split}_{number}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            records = [record for _, record in zip(range(each), made, strict=False)]
            path.write_text(json.dumps(records), encoding="utf-8")
            written[split].append(path)
    return written
