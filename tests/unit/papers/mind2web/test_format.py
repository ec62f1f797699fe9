"""Mind2Web and MT-Mind2Web: what their files become, and what is said of broken ones."""

import json
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from prill.cli import main
from prill.errors import InputError
from prill.io.store import BadLine, iter_trajectories
from prill.papers.mind2web.format import load
from prill.papers.mind2web.pages.state import PageState, read_state
from prill.types import Trajectory

PAGE = (
    '<html backend_node_id="1"><a backend_node_id="7"/><b backend_node_id="30"/><i '
    'backend_node_id="4"/></html>'
)


def act(uid: str, op: str = "CLICK", value: str = "", **more: Any) -> dict[str, Any]:
    return {
        "action_uid": uid,
        "operation": {"op": op, "original_op": op, "value": value},
        "raw_html": "<html/>",
        "cleaned_html": PAGE,
        "pos_candidates": [
            {"tag": "b", "backend_node_id": "30", "attributes": "{}", "is_original_target": True}
        ],
        "neg_candidates": [
            {"tag": "a", "backend_node_id": "7"},
            {"tag": "i", "backend_node_id": "4"},
        ],
        **more,
    }


def task(id: str, **more: Any) -> dict[str, Any]:
    reprs = ["[link]  Sale -> CLICK", "[textbox]  Zip code -> TYPE: 10203"]
    return {
        "annotation_id": id,
        "website": "shop",
        "domain": "Shopping",
        "subdomain": "General",
        "confirmed_task": f"Do {id}",
        "action_reprs": reprs,
        "actions": [act(f"{id}-a"), act(f"{id}-b", "TYPE", "10203")],
        **more,
    }


def conversation(id: str, *turns: dict[str, Any]) -> dict[str, Any]:
    return {
        "task_id": id,
        "website": "shop",
        "domain": "Shopping",
        "subdomain": "Digital",
        "turns": list(turns),
    }


def read(tmp_path: Path, content: Any, **options: Any) -> list[Trajectory | BadLine]:
    (tmp_path / "data.json").write_text(
        content if isinstance(content, str) else json.dumps(content)
    )
    return list(load(tmp_path / "data.json", **options))


def turns(items: list[Trajectory | BadLine]) -> list[Trajectory]:
    assert all(isinstance(item, Trajectory) for item in items), items
    return [item for item in items if isinstance(item, Trajectory)]


def states(turn: Trajectory) -> list[PageState]:
    return [read_state(step.observation.text or "") for step in turn.steps]


def test_single_task_is_one_turn(tmp_path: Path) -> None:
    (turn,) = turns(read(tmp_path, [task("t1")]))
    assert (turn.id, turn.task.id, turn.task.goal, turn.task.site, turn.task.platform) == (
        "t1",
        "t1",
        "Do t1",
        "shop",
        "web",
    )
    assert turn.metadata == {
        **{
            "conversation": "t1",
            "turn": 0,
            "domain": "Shopping",
            "subdomain": "General",
            "uids": ["t1-a", "t1-b"],
        }
    }
    assert [
        (s.action.kind, s.action.text, s.action.target, s.action.value) for s in turn.steps
    ] == [
        ("click", "[link]  Sale -> CLICK", "30", None),
        ("type", "[textbox]  Zip code -> TYPE: 10203", "30", "10203"),
    ]


def test_past_actions_restart_in_every_turn(tmp_path: Path) -> None:
    for turn in turns(read(tmp_path, [conversation("c", task("t1"), task("t2"))])):
        assert [state.past for state in states(turn)] == [(), ("[link]  Sale -> CLICK",)]


def test_earlier_turns_come_without_pages(tmp_path: Path) -> None:
    first, second, other = turns(
        read(tmp_path, [conversation("c", task("t1"), task("t2")), task("t3")])
    )
    assert (first.task.earlier, other.task.earlier) == ((), ())
    assert [past.id for past in second.task.earlier] == ["t1"]
    assert [step.action for step in second.task.earlier[0].steps] == [
        step.action for step in first.steps
    ]
    assert all(step.observation.text is None for step in second.task.earlier[0].steps)
    assert (second.metadata["conversation"], second.metadata["turn"]) == ("c", 1)


def test_ranks_of_the_record_order_candidates(tmp_path: Path) -> None:
    ranked = act(
        "u",
        pos_candidates=[{"backend_node_id": "30", "rank": 1}],
        neg_candidates=[{"backend_node_id": "4", "rank": 0}],
    )
    ranked["neg_candidates"].append({"backend_node_id": "7"})
    (turn,) = turns(read(tmp_path, [task("t", actions=[ranked], action_reprs=["x"])]))
    assert states(turn)[0].candidates == ("4", "30", "7")


def test_scores_of_the_rankers_code_are_read(tmp_path: Path) -> None:
    """Its pickle has dictionaries of a subclass."""
    scores: defaultdict[str, dict[str, float]] = defaultdict(dict)
    scores["t1_t1-a"]["30"] = 1.5
    scores["t1_t1-a"]["4"] = 0.5
    (tmp_path / "scores.pkl").write_bytes(
        pickle.dumps({"scores": scores, "ranks": defaultdict(dict)})
    )
    turn, _ = read(tmp_path, [task("t1")], scores=tmp_path / "scores.pkl")
    assert isinstance(turn, Trajectory)
    assert read_state(turn.steps[0].observation.text or "").candidates[:2] == ("30", "4")
    (tmp_path / "none.pkl").write_bytes(pickle.dumps({"scores": []}))
    with pytest.raises(InputError, match="no scores"):
        read(tmp_path, [task("t1")], scores=tmp_path / "none.pkl")


def test_convert_orders_by_a_score_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.json").write_text(json.dumps([task("t1")]))
    scores = {f"t1_t1-{k}": {"4": 3.5, "30": 1.5, "7": -2.0} for k in "ab"}
    (tmp_path / "s.json").write_text(json.dumps({"scores": scores}))
    source, out = str(tmp_path / "in.json"), tmp_path / "out"
    assert (
        main(["convert", "mind2web", source, "--scores", str(tmp_path / "s.json"), "-o", str(out)])
        == 0
    )
    (turn,) = turns(list(iter_trajectories(out / "trajectories.jsonl")))
    assert [state.candidates for state in states(turn)] == [("4", "30", "7")] * 2
    assert (
        main(
            [
                "convert",
                "atif",
                source,
                "--scores",
                str(tmp_path / "s.json"),
                "-o",
                str(tmp_path / "no"),
            ]
        )
        == 2
    )
    assert (
        "format 'atif' has no such option; formats with this option: mind2web"
        in capsys.readouterr().err
    )


def test_lost_positive_leaves_target_empty(tmp_path: Path) -> None:
    (turn,) = turns(
        read(tmp_path, [task("t", actions=[act("u", pos_candidates=[])], action_reprs=["x"])])
    )
    assert (turn.steps[0].action.target, states(turn)[0].candidates) == ("", ("7", "4"))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            {"actions": [act("u", "HOVER")], "action_reprs": ["x"]},
            r"unknown operation 'HOVER'.*\$.actions\[0\]",
        ),
        ({"action_reprs": ["x"]}, "1 action_reprs for 2 actions"),
        ({"actions": [], "action_reprs": []}, "no actions"),
        ({"actions": [{"action_uid": 3}], "action_reprs": ["x"]}, r"actions\[0\]"),
        ({"confirmed_task": None}, "confirmed_task"),
    ],
)
def test_broken_turn_is_named_the_rest_read(
    tmp_path: Path, broken: dict[str, Any], message: str
) -> None:
    items = read(tmp_path, [conversation("c", task("t1"), task("t2", **broken), task("t3"))])
    assert [type(item) for item in items] == [Trajectory, BadLine, Trajectory]
    assert isinstance(items[1], BadLine) and "turns[1]" in items[1].place
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(items[1].message)
    assert isinstance(items[2], Trajectory) and [past.id for past in items[2].task.earlier] == [
        "t1"
    ]
