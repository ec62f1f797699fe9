"""Programs for games: tic-tac-toe, guessing a number, deleting files in a terminal."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

from tests.support.programmatic.screen import Move, Node, Page, click, enter

_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def _tic_tac_toe(match: re.Match[str], page: Page) -> list[Move]:
    cells = [page.one(f"ttt-{place}") for place in range(9)]
    board = "".join(map(_mark, cells))
    free = [place for place in range(9) if board[place] == " "]
    if _winner(board) or not free:
        return []
    return [click(cells[max(free, key=lambda place: _worth(_placed(board, place, "X"), "O"))])]


def _mark(cell: Node) -> str:
    classes = cell.attributes.get("class", "")
    return "X" if "mark-x" in classes else "O" if "mark-o" in classes else " "


def _placed(board: str, place: int, mark: str) -> str:
    return board[:place] + mark + board[place + 1 :]


def _winner(board: str) -> str | None:
    return next((board[a] for a, b, c in _LINES if board[a] == board[b] == board[c] != " "), None)


@cache
def _worth(board: str, turn: str) -> float:
    """Returns the value of the board for X against an opponent who plays randomly half the time, so
    that setting traps pays off.
    """
    if winner := _winner(board):
        return 1.0 if winner == "X" else -1.0
    free = [place for place in range(9) if board[place] == " "]
    if not free:
        return -0.5
    values = [_worth(_placed(board, place, turn), "O" if turn == "X" else "X") for place in free]
    return max(values) if turn == "X" else 0.5 * min(values) + 0.5 * sum(values) / len(values)


def _guess(match: re.Match[str], page: Page) -> list[Move]:
    """Guesses by bisection. The sequence of earlier guesses shows the answers to them."""
    field, submit = page.field(), click(page.end())
    if page.done and page.done[-1].kind == "type":
        return [submit]
    guesses = [int(move.text) for move in page.done if move.kind == "type"]
    low, high = int(match["low"]), int(match["high"])
    for earlier, later in pairwise(guesses):
        low, high = (earlier + 1, high) if later > earlier else (low, earlier - 1)
    if guesses:
        shown = " ".join(node.text for node in page.nodes)
        if "higher" not in shown and "lower" not in shown:
            return []
        low, high = (guesses[-1] + 1, high) if "higher" in shown else (low, guesses[-1] - 1)
    return [enter(field, str((low + high) // 2)), submit]


def _terminal(match: re.Match[str], page: Page) -> list[Move]:
    """Lists the files, then deletes one with the ending. The terminal has the focus from the
    start.
    """
    listing = [Move("type", text="ls"), Move("press", text="Enter")]
    if listed := page.left(listing):
        return listed
    files = [
        name
        for node in page.nodes
        for name in node.text.split()
        if _ends(name, match["ending"], node)
    ]
    if not files:
        raise LookupError("no such file is listed")
    removal = [Move("type", text=f"rm {files[0]}"), Move("press", text="Enter")]
    typed = page.done[-1] == removal[0]
    return removal[1:] if typed else [] if removal[0] in page.done else removal


def _ends(name: str, ending: str | None, node: Node) -> bool:
    """Returns whether a node is an output line with a file of this ending, not the welcome text or
    the date.
    """
    if "output" not in node.attributes.get("class", "") or re.search(r"Welcome|login", node.text):
        return False
    return name.endswith(ending) if ending else "." not in name


PROGRAMS = {
    r"^Playing as 'X', win a game of tic-tac-toe": _tic_tac_toe,
    r"^Guess the number between (?P<low>\d+)-(?P<high>\d+)": _guess,
    r"^Use the terminal below to delete a file (?:ending with the extension (?P<ending>\.\S+)|that has no)": _terminal,  # noqa: E501
}
