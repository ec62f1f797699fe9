"""Pages cut around candidates and put into text, by the rules of MindAct; what is expected was
worked out by hand.
"""

import os
from pathlib import Path

import msgspec
import pytest

from prill.errors import InputError
from prill.papers.mind2web.pages.tree import RecordedPage, attribute_summary, ranker_query

# 1 html > 2 body > (3 nav of three links, 4 form, 5 footer)
PAGE = """<html backend_node_id="1"><body backend_node_id="2">
 <div backend_node_id="3" class="nav"><a backend_node_id="31"><text backend_node_id="310">Home</text></a>
   <a backend_node_id="32" title="Deals"><text>Deals of the week</text></a></div>
 <div backend_node_id="4"><div backend_node_id="41">
   <input backend_node_id="42" type="text" placeholder="Zip code" value="10203"/></div>
   <button backend_node_id="43" type="submit" aria_label="Search"><text>Search</text></button></div>
 <div backend_node_id="5"><span backend_node_id="51"><text>Imprint</text></span></div>
</body></html>"""  # noqa: E501


def test_page_text_is_as_worked_out() -> None:
    view = RecordedPage(PAGE).view(["42", "43"])
    # 3 and 5 go, being no siblings of a candidate; body then has one child, as 41 has: each is
    # replaced by it; 4 keeps two
    assert (
        view.text
        == "(html (div (input id=0 text 10203 zip code ) (button id=1 submit search Search ) ) )"
    )


def test_angle_brackets_close_by_their_tags() -> None:
    view = RecordedPage(PAGE).view(["42", "43"], brackets="angle")
    assert view.text == (
        "<html> <div> <input id=0 text 10203 zip code /> <button id=1 submit search> Search "
        "</button> </div> </html>"
    )


def test_original_ids_are_those_of_the_nodes() -> None:
    view = RecordedPage(PAGE).view(["43"], brackets="angle", ids="original")
    assert "<button id=43 submit search> Search </button>" in view.text
    assert view.choices[0].text == "<button id=43 submit search> Search </button>"


def test_choice_k_is_printed_as_id_k() -> None:
    # not in the order of the document
    view = RecordedPage(PAGE).view(["43", "31", "42", "none such"])
    assert [choice.id for choice in view.choices] == ["31", "42", "43"]
    assert [choice.text for choice in view.choices] == [
        "(a id=0 Home )",
        "(input id=1 text 10203 zip code )",
        "(button id=2 submit search Search )",
    ]
    assert all(choice.text in view.text for choice in view.choices)


def test_choice_has_ten_words_of_its_text() -> None:
    page = RecordedPage(
        '<a><b backend_node_id="7"><text>one two three four five six seven eight nine ten '
        "eleven</text></b></a>"
    )
    assert page.view(["7"]).choices[0].text == "(b id=0 one two three four five six seven eight"


def test_only_near_siblings_are_kept() -> None:
    links = "".join(
        f'<a backend_node_id="{k}" title="t{k}"/><text>word{k}</text>' for k in range(10)
    )
    text = RecordedPage(f'<html backend_node_id="r" lang="en">{links}</html>').view(["5"]).text
    assert [k for k in range(10) if f"t{k} " in text] == [2, 3, 4, 5, 6, 7, 8]
    # texts go with their parent, and are not counted as siblings
    assert all(f"word{k}" in text for k in range(10))


def test_descendants_end_at_level_six() -> None:
    deep = "".join(f'<i backend_node_id="d{k}" title="level{k}">' for k in range(1, 9)) + "</i>" * 8
    text = RecordedPage(f'<html><b backend_node_id="c">{deep}</b></html>').view(["c"]).text
    assert [k for k in range(1, 9) if f"level{k}" in text] == [1, 2, 3, 4, 5, 6]


def test_descendants_end_after_fifty() -> None:
    many = "".join(f'<i backend_node_id="d{k}" title="t{k}"/>' for k in range(60))
    text = RecordedPage(f'<html><b backend_node_id="c">{many}</b></html>').view(["c"]).text
    assert text.count("(i ") == 50
    assert "t49 " in text and "t50 " not in text


def test_words_in_an_element_count_as_text() -> None:
    page = RecordedPage(
        '<html><p backend_node_id="p">before <b backend_node_id="1" title="x"/> after</p></html>'
    )
    assert (
        page.view(["1"], brackets="angle").text
        == "<html> <p> before <b id=0 x /> after </p> </html>"
    )


def test_attribute_words_are_limited() -> None:
    assert attribute_summary({"name": "one two three four five six"}) == "one two three four five"
    assert (
        attribute_summary({"name": "short fifteenlettersx fourteenletter"})
        == "short fourteenletter"
    )
    every = {
        name: " ".join(f"{name[:3]}{k}" for k in range(5))
        for name in ("role", "type", "alt", "label", "title")
    }
    assert len(attribute_summary(every).split()) == 20


def test_text_is_its_first_twenty_words() -> None:
    page = RecordedPage(
        f'<html><b backend_node_id="1"><text>{" ".join(f"w{k}" for k in range(30))}</text></b></html>'  # noqa: E501
    )
    assert page.view(["1"]).text.endswith("w18 w19 ) )")


def test_ranker_text_names_ancestors_and_target() -> None:
    assert (
        RecordedPage(PAGE).candidate_text("42")
        == "ancestors: /html\ntarget: (input id=0 text 10203 zip code )"
    )


def test_ranker_text_has_slashes_for_ancestors() -> None:
    html = """<html><div class="nav" backend_node_id="3"><text>Go to</text><a backend_node_id="1"><text>Home</text></a>
      <a backend_node_id="2" title="Deals"/></div></html>"""  # noqa: E501
    assert (
        RecordedPage(html).candidate_text("1")
        == "ancestors: /html/div nav Go to/a deals\ntarget: (a id=0 Home )"
    )


def test_ranker_text_is_limited() -> None:
    words = "".join(f"<text>{' '.join(f'w{k}x{j}' for j in range(20))}</text>" for k in range(8))
    above, own = (
        RecordedPage(f'<html backend_node_id="h">{words}<b backend_node_id="1">{words}</b></html>')
        .candidate_text("1")
        .split("\n")
    )
    assert len(above.split()) == 1 + 50 and above.endswith("w7x19")
    assert len(own.split()) == 1 + 100 and own.startswith("target: (b id=0 w0x0")


def test_ranker_query_has_three_last_actions() -> None:
    assert (
        ranker_query("Find\na flat", ["a", "b", "c", "d"])
        == "task is: Find a flat\nPrevious actions: b; c; d"
    )
    assert ranker_query("Find", []) == "task is: Find\nPrevious actions: "


def test_deep_page_is_an_error_or_is_read() -> None:
    for levels in (1_000, 10_000):
        html = (
            '<div backend_node_id="1" class="x">' * levels
            + '<a backend_node_id="2"/>'
            + "</div>" * levels
        )
        try:
            assert RecordedPage(html).view(["2"]).text.count("(div x") == levels
        except InputError as error:
            assert levels > 1_000 and "depth" in str(error)


def test_declared_entities_are_refused() -> None:
    laughs = '<!DOCTYPE a [<!ENTITY l "ha"><!ENTITY m "&l;&l;">]><a>&m;</a>'
    with pytest.raises(InputError, match="entities"):
        RecordedPage(laughs)


REAL = os.environ.get("PRILL_SEEACT_STEP")


@pytest.mark.skipif(not REAL, reason="PRILL_SEEACT_STEP names no queries.jsonl of SeeAct")
class TestRealStep:
    """A step of Mind2Web as SeeAct ships it, with the page text and choices that MindAct's own
    formatter made.
    """

    @pytest.fixture(scope="class")
    def rows(self) -> list[dict]:
        return [
            msgspec.json.decode(line)
            for line in Path(str(REAL)).read_bytes().splitlines()
            if line.strip()
        ]

    def test_page_and_choices_are_mindacts(self, rows: list[dict]) -> None:
        for row in rows:
            view = RecordedPage(row["cleaned_html"]).view(
                [choice[0] for choice in row["choices"]], brackets="angle"
            )
            assert view.text == row["context_html"]
            assert [[choice.id, choice.text] for choice in view.choices] == row["choices"]

    def test_synapse_text_has_its_known_length(self, rows: list[dict]) -> None:
        row = rows[0]
        positive = row["pos_candidates"][0]["backend_node_id"]
        negatives = [
            c["backend_node_id"] for c in sorted(row["neg_candidates"], key=lambda c: c["rank"])
        ]
        page = RecordedPage(row["cleaned_html"])
        sizes = {
            k: len(
                page.view([positive, *negatives[: k - 1]], brackets="angle", ids="original").text
            )
            for k in (3, 5, 20, 50)
        }
        assert sizes == {3: 233, 5: 488, 20: 1698, 50: 4905}
