"""Near-synonyms for the tasks about similar words."""

from __future__ import annotations

_GROUPS = (
    "big large huge enormous gigantic immense vast", "small tiny little mini petite miniature",
    "red scarlet crimson vermillion ruby", "happy cheerful joyful gleeful delighted glad merry",
    "sad unhappy sorrowful miserable tragic gloomy", "angry mad furious irritated enraged cross",
    "evil wicked immoral sinful corrupt depraved vicious",
    "wrong incorrect mistaken erroneous false", "real genuine actual true authentic",
    "strange odd peculiar unusual weird bizarre", "stop cease halt end finish quit",
    "scared terrified panicked fearful frightened afraid",
    "quiet calm peaceful serene mild tranquil", "old aged archaic ancient elderly",
    "love like adore favor cherish", "kill murder assassinate slay",
    "keep retain preserve sustain maintain", "hide conceal camouflage disguise",
    "hate despise loathe detest dislike", "funny humorous amusing comical laughable hilarious",
    "fat fleshy plump chubby stout", "stupid dumb dull unwise foolish",
    "delicious savory delectable appetizing tasty", "cut slice carve chop",
    "brave courageous fearless bold valiant", "begin start initiate launch commence",
    "answer reply response", "television tv", "house home", "fire flame blaze",
    "pig pork swine hog", "rabbit bunny hare", "car automobile vehicle",
)  # fmt: skip
_GROUP_OF = {word: number for number, group in enumerate(_GROUPS) for word in group.split()}


def similar(one: str, other: str) -> bool:
    """Returns whether the two words are near-synonyms, or equal except for number and case."""
    first, second = _singular(one), _singular(other)
    return first == second or (first in _GROUP_OF and _GROUP_OF[first] == _GROUP_OF.get(second))


def _singular(word: str) -> str:
    word = word.lower()
    if word in _GROUP_OF:
        return word
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    return word.removesuffix("s")
