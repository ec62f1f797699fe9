"""Generated conversations: the format of MT-Mind2Web, turns that refer back, test sites with words
of their own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.support.conversations import conversations, write_conversations
from tests.support.conversations.__main__ import main


@pytest.fixture(scope="module")
def train() -> list[dict[str, Any]]:
    return list(conversations("train", 60))


@pytest.fixture(scope="module")
def test_website() -> list[dict[str, Any]]:
    return list(conversations("test_website", 40))


def turns(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [turn for record in records for turn in record["turns"]]


def actions(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [action for turn in turns(records) for action in turn["actions"]]


def words_of_pages(records: list[dict[str, Any]]) -> set[str]:
    pages = (etree.fromstring(action["cleaned_html"]) for action in actions(records))
    shown = (
        text
        for page in pages
        for text in page.xpath("//text/text() | //@placeholder | //@title | //@value")
    )
    return {word.lower() for text in shown for word in re.findall(r"\w+", text)}


def test_records_have_the_fields_of_mt_mind2web(train: list[dict[str, Any]]) -> None:
    assert all(
        set(record) == {"task_id", "website", "domain", "subdomain", "turns"} for record in train
    )
    for turn in turns(train):
        assert {"annotation_id", "confirmed_task", "action_reprs", "actions"} <= set(turn)
        assert len(turn["action_reprs"]) == len(turn["actions"])
    for action in actions(train):
        fields = {
            "action_uid",
            "operation",
            "raw_html",
            "cleaned_html",
            "pos_candidates",
            "neg_candidates",
        }
        assert set(action) == fields and set(action["operation"]) == {"op", "original_op", "value"}


def test_each_node_has_a_number_of_its_own(train: list[dict[str, Any]]) -> None:
    for action in actions(train[:10]):
        nodes = list(etree.fromstring(action["cleaned_html"]).iter())
        ids = [node.get("backend_node_id") for node in nodes]
        assert None not in ids and len(set(ids)) == len(ids)
        assert all(node.tag == "text" for node in nodes if node.text)


def test_candidates_are_nodes_of_their_page(train: list[dict[str, Any]]) -> None:
    for action in actions(train[:10]):
        tags = {
            node.get("backend_node_id"): node.tag
            for node in etree.fromstring(action["cleaned_html"]).iter()
        }
        candidates = action["pos_candidates"] + action["neg_candidates"]
        assert len(action["pos_candidates"]) == 1 and 20 <= len(candidates) <= 60
        for one in candidates:
            assert tags[one["backend_node_id"]] == one["tag"]
            assert json.loads(one["attributes"])["backend_node_id"] == one["backend_node_id"]


def test_turns_and_actions_are_few_and_many(train: list[dict[str, Any]]) -> None:
    assert {len(record["turns"]) for record in train} == {3, 4, 5}
    assert {len(turn["actions"]) for turn in turns(train)} == {1, 2, 3}
    assert {action["operation"]["op"] for action in actions(train)} == {"CLICK", "TYPE", "SELECT"}
    assert len({record["website"] for record in train}) == 12


def test_a_third_of_the_turns_refer_back(train: list[dict[str, Any]]) -> None:
    kinds = [turn["refers"] for turn in turns(train)]
    assert 0.3 < 1 - kinds.count("none") / len(kinds) < 0.6 and kinds.count("other") > 0.04 * len(
        kinds
    )
    assert all(record["turns"][0]["refers"] == "none" for record in train)


def test_only_history_tells_what_is_meant(train: list[dict[str, Any]]) -> None:
    for record in train:
        earlier: dict[str, dict[str, Any]] = {}
        for turn in record["turns"]:
            earlier[turn["annotation_id"]] = turn
            if turn["refers"] == "none":
                continue
            (repr_,) = [
                one
                for one in turn["action_reprs"]
                if "[button]" not in one and not one.endswith("CLICK")
            ] or [turn["action_reprs"][-1]]
            action = turn["actions"][turn["action_reprs"].index(repr_)]
            name = action["operation"]["value"] or repr_.split("]  ")[1].split(" -> ")[0]
            assert name not in turn["confirmed_task"]
            assert name in earlier[turn["refers_to"]]["confirmed_task"]
            page = etree.fromstring(action["cleaned_html"])
            beside = [
                page.xpath(f"//section[.//text='{name}']//a"),
                page.xpath(f"//select[option/text='{name}']/option"),
            ]
            assert max(map(len, beside)) >= 4  # all equally fitting


def test_no_page_of_a_test_site_speaks_of_training(
    train: list[dict[str, Any]], test_website: list[dict[str, Any]]
) -> None:
    assert words_of_pages(train) & words_of_pages(test_website) == set()
    assert {one["website"] for one in train}.isdisjoint(one["website"] for one in test_website)


def test_the_same_number_gives_the_same(train: list[dict[str, Any]]) -> None:
    assert list(conversations("train", 3)) == train[:3] != list(conversations("train", 3, seed=1))


def test_pages_grow_to_thousands_of_nodes() -> None:
    (record,) = conversations("train", 1, nodes=5000)
    assert 5000 <= len(list(etree.fromstring(actions([record])[0]["cleaned_html"]).iter())) < 5200


def test_files_hold_every_conversation_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = write_conversations(
        tmp_path / "a", counts={"train": 5, "dev": 2, "test_website": 0}, each=2
    )
    read = [
        record
        for path in written["train"]
        for record in json.loads(path.read_text(encoding="utf-8"))
    ]
    assert [len(paths) for paths in written.values()] == [3, 1, 0] and read == list(
        conversations("train", 5)
    )
    assert main([str(tmp_path / "b"), "--train", "1", "--dev", "0", "--test-website", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / f"b/{name}/{name}_0.json") for name in ("train", "test_website")
    ]
