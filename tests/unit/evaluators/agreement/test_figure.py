"""Tables of figures as text."""

from prill.evaluators.agreement.figure import Figure, text_table


def test_texts_stand_left_and_figures_right() -> None:
    rows = [("short", 0.5, 12), ("a longer name", Figure("kappa", 0.25, undefined=True), 3)]
    assert list(text_table(("by", "kappa", "n"), rows)) == [
        "by             kappa   n",
        "short          0.500  12",
        "a longer name      -   3",
    ]
