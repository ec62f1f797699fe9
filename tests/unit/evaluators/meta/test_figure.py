"""Tables of figures as text and as Markdown."""

from prill.evaluators.meta.figure import Figure, markdown_table, text_table


def test_names_cannot_break_a_markdown_table() -> None:
    table = markdown_table(("judge", "kappa"), [("a | b\n<i>[x](y)", 0.5), ("c", None)])
    assert table.splitlines()[2:] == ["| a \\| b &lt;i>\\[x\\](y) | 0.500 |", "| c | - |"]


def test_texts_stand_left_and_figures_right() -> None:
    rows = [("short", 0.5, 12), ("a longer name", Figure("kappa", 0.25, undefined=True), 3)]
    assert list(text_table(("by", "kappa", "n"), rows)) == [
        "by             kappa   n",
        "short          0.500  12",
        "a longer name      -   3",
    ]
