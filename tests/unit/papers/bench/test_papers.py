"""The figures of the papers: the tables by task come to the means that were printed, and files of
one's own are checked.
"""

from __future__ import annotations

from collections import Counter
from math import isnan
from pathlib import Path
from statistics import fmean

import pytest

from prill.errors import UsageError
from prill.papers.bench.papers import ALL, list_tasks, paper_names, read_paper, theirs
from prill.papers.synapse.prompting import task_table

OWN = """
title = "ours, last year"
paper = "a report"
source = "a file"
benchmark = "miniwob"
columns = [{ name = "a", model = "m" }, { name = "b", model = "m" }]

[categories]
easy = ["click-link", "click-tab"]

[tasks]
click-link = [1.0, 0.5]
click-tab = [0.5, nan]
"""


def means(name: str, category: str) -> list[float]:
    """The mean of each column over the tasks of a category, from the table by task alone."""
    paper = read_paper(name)
    tasks = list_tasks(paper) if category == ALL else paper.categories[category]
    return [
        round(fmean(paper.tasks[task][i] for task in tasks), 3) for i in range(len(paper.columns))
    ]


def test_reflection_categories_come_out_as_printed() -> None:
    assert means("structured-reflection", "1-screen-1-step") == [0.964, 0.996, 1.0]
    # The paper says 96.2 at T=3, where its own table has 96.4.
    assert means("structured-reflection", "1-screen-n-step") == [0.94, 0.964, 0.966]
    assert means("structured-reflection", "n-screen-n-step") == [0.723, 0.849, 0.871]


def test_step_tasks_come_to_its_four_means() -> None:
    assert means("step", ALL) == [0.623, 0.72, 0.603, 0.961]
    paper = read_paper("step")
    assert [round(fmean(row[i] for row in paper.actions.values()), 2) for i in range(4)] == [
        3.7,
        3.38,
        3.43,
        2.89,
    ]


def test_synapse_has_58_figures_of_64_tasks() -> None:
    paper = read_paper("synapse")
    known = [share for share, *_ in paper.tasks.values() if not isnan(share)]
    assert (len(paper.tasks), len(known), round(fmean(known), 4)) == (64, 58, 0.9907)
    assert round((sum(known) + 6) / 64, 3) == paper.printed[ALL][0], (
        "with 1.00 for the six others it is what the paper says"
    )
    figure, *others = theirs(paper, ALL, list_tasks(paper))
    assert figure is not None
    assert (round(figure.success, 4), figure.tasks) == (0.9907, 58)
    assert len(others) == 10
    assert [other and other.tasks for other in others] == [58, 50, 49, 33, 33, 58, 58, 50, 50, 53]


def test_synapse_columns_are_the_printed_ones_by_task() -> None:
    rows = read_paper("synapse").tasks
    assert rows["terminal"][:3] == (1.0, 0.88, 1.0)
    assert rows["terminal"][6] == -0.01, "a mean of rewards, as CC-Net has it"
    assert rows["guess-number"][1:4] == (0.99, 0.2, 0.88)
    assert rows["use-spinner"][8:] == (0.11, 0.07, 0.17)


def test_webarena_groups_come_to_the_whole() -> None:
    paper = read_paper("step-webarena")
    assert sum(paper.sizes.values()) == 812
    weighted = sum(paper.printed[group][5] * size for group, size in paper.sizes.items()) / 812
    assert round(weighted, 3) == paper.printed[ALL][5]
    (first, *_) = theirs(paper, "multi", ["1"])
    assert first is None, "Zhou et al. give no figure for tasks on several sites"


def test_lists_have_the_sizes_of_the_papers() -> None:
    sizes = {
        name: [len(names) for names in read_paper(name).categories.values()]
        for name in paper_names("miniwob")
    }
    assert sizes == {
        "step": [19, 26],
        "structured-reflection": [10, 20, 13],
        "structured-reflection-shared": [16, 11],
        "synapse": [48, 16],
    }
    assert read_paper("synapse").categories == {
        "exemplars": task_table().exemplars,
        "unseen": task_table().unseen,
    }
    assert paper_names() == (
        *sorted([*sizes, "step-webarena", "step-airline", *paper_names("mind2web")]),
    )
    for name in sizes:
        assert max(Counter(list_tasks(read_paper(name))).values()) == 1
        if read_paper(name).tasks:
            assert set(read_paper(name).tasks) == set(list_tasks(read_paper(name)))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("[1.0, 0.5]", "[1.0]", r"tasks\.click-link: 1 figures for 2 columns"),
        ("[1.0, 0.5]", "[96.4, 0.5]", r"tasks\.click-link: expected shares from 0 to 1"),
        ('"click-tab"]', '"click-link"]', "categories: click-link is listed twice"),
        ('"click-link", ', "", r"tasks\.click-link: belongs to no category"),
        (
            'benchmark = "miniwob"',
            'benchmark = "mind3web"',
            r"Invalid enum value 'mind3web' - at `\$\.benchmark`",
        ),
        ("columns = ", "column = ", "missing required field `columns`"),
        ("title", "title = ", "not valid TOML"),
    ],
)
def test_broken_figures_name_their_place(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(UsageError, match=problem) as raised:
        read_paper(path)
    assert str(path) in str(raised.value)
