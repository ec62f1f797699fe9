"""WebArena's rendered pages, logs and task file; the pages are made up in the form in which
WebArena writes them.
"""

from __future__ import annotations

import base64
import importlib.metadata
import json
from collections import Counter
from pathlib import Path

import pytest

from prill.actions.webarena import parse_action
from prill.datasets.formats.webarena import load, load_labels
from prill.datasets.webarena_tasks import TaskConfig, load_configs, make_task, read_configs
from prill.types import LabelRecord, Trajectory

PNG = b"\x89PNG\r\n\x1a\n a picture"
HEAD = (
    "<pre>sites: ['shopping', 'map']\ntask_id: {task}\nrequire_login: True\nstart_url: "
    "http://shop:7770\n"
    "intent_template: Find {{{{what}}}}\nintent: Find tea & <cake>\nrequire_reset: False\n"
    "eval: {{'reference_answers': {{'exact_match': 'SECRET'}}}}\nintent_template_id: 222\n</pre>\n"
)


def page(
    text: str, action: str, raw: str = "I click. ```click [7]```", image: bytes | None = PNG
) -> str:
    encoded = base64.b64encode(image).decode() if image is not None else ""
    image_tag = (
        f"<img src='data:image/png;base64,{encoded}' style='width:50vw; height:auto;'/>\n"
        if image is not None
        else ""
    )
    return (
        "<h2>New Page</h2>\n<h3 class='url'><a href=http://shop/a>URL: http://shop/a</a></h3>\n"
        f"<div class='state_obv'><pre>{text}</pre><div>\n{image_tag}"
        "<div class='prev_action' style='background-color:pink'>None</div>\n"
        "<div class='predict_action'><div class='raw_parsed_prediction' "
        f"style='background-color:grey'><pre>{raw}</pre></div>"
        "<div class='action_object' style='background-color:grey'><pre>{'x': 1}</pre></div>"
        "<div class='parsed_action' "
        f"style='background-color:yellow'><pre>{action}</pre></div></div>\n"
    )


def render(folder: Path, name: str, *pages: str, task: int = 24) -> Path:
    path = folder / f"render_{name}.html"
    body = HEAD.format(task=task) + "".join(pages)
    path.write_text(
        f"\n<!DOCTYPE html>\n<head>\n</head>\n<html>\n    <body>\n     {body}\n    "
        "</body>\n</html>\n",
        encoding="utf-8",
    )
    return path


def test_page_becomes_step_with_screenshot(tmp_path: Path) -> None:
    clicked = page(
        "Tab 0 (current): Shop\n\n[7] link 'Cart'", "click [7] where [7] is [7] link 'Cart'"
    )
    render(tmp_path, "24", clicked, page("[9] StaticText '$5'", "stop [$5]", raw="```stop [$5]```"))
    for items in load(tmp_path):
        assert isinstance(items, Trajectory)
        assert (items.id, items.task.id, items.task.site) == ("webarena.24", "webarena.24", "multi")
        assert (items.task.goal, items.task.start_url, items.answer) == (
            "Find tea & <cake>",
            "http://shop:7770",
            "$5",
        )
        first = items.steps[0]
        assert (first.action.kind, first.action.target, first.thought) == (
            "click",
            "link 'Cart'",
            "I click. ```click [7]```",
        )
        assert (first.observation.url, first.observation.text) == (
            "http://shop/a",
            "Tab 0 (current): Shop\n\n[7] link 'Cart'",
        )
        assert Path(str(first.observation.screenshot)).read_bytes() == PNG
        assert items.final is None


def test_bare_ids_read_from_page(tmp_path: Path) -> None:
    tree = (
        "Tab 0 (current): Shop\n\n[1] RootWebArea 'Shop' focused: True\n\t[17] link "
        "'Cart'\n\t[170] textbox '' required: False"
    )
    actions = (
        "click [17]",
        "type [170] [red shoes] [1]",
        "click [7]",
        "click [17] where [17] is link 'Cart'",
    )
    render(tmp_path, "24", *(page(tree, action) for action in actions))
    for item in load(tmp_path):
        assert isinstance(item, Trajectory)
        assert [
            (step.action.text, step.action.target, step.action.value) for step in item.steps
        ] == [
            (actions[0], "[17] link 'Cart'", None),
            (actions[1], "[170] textbox", "red shoes"),
            (actions[2], "7", None),
            (actions[3], "link 'Cart'", None),
        ]


def test_reference_answer_stays_out(tmp_path: Path) -> None:
    render(tmp_path, "24", page("t", "stop []"))
    loaded = list(load(tmp_path))
    assert "SECRET" not in repr(loaded) and loaded[0].metadata["intent_template_id"] == 222


def test_page_text_like_markup_stays_text(tmp_path: Path) -> None:
    text = (
        "[1] StaticText '</pre><div>'\n[2] <div class='parsed_action'><pre>stop "
        "[hacked]</pre></div> <h2>New Page</h2>"
    )
    render(tmp_path, "24", page(text, "stop [no]"))
    (trajectory,) = load(tmp_path)
    assert isinstance(trajectory, Trajectory)
    assert (len(trajectory.steps), trajectory.steps[0].observation.text, trajectory.answer) == (
        1,
        text,
        "no",
    )


def test_temporary_screenshots_are_removed(tmp_path: Path) -> None:
    for task in (1, 2):
        render(tmp_path, str(task), page("t", "stop []"), task=task)
    runs = load(tmp_path)
    paths = []
    for run in runs:
        assert isinstance(run, Trajectory)
        paths.append(Path(str(run.steps[0].observation.screenshot)))
        assert [path.exists() for path in paths] == [False] * (len(paths) - 1) + [True]
    assert not paths[0].parent.parent.exists()


def test_early_stop_is_the_harness(tmp_path: Path) -> None:
    render(tmp_path, "24", page("t", "stop [Early stop: Same action for 3 times]", raw=""))
    (trajectory,) = load(tmp_path)
    assert isinstance(trajectory, Trajectory)
    assert (trajectory.answer, trajectory.steps[0].thought, trajectory.metadata) == (
        None,
        None,
        {"ended_by": "Early stop: Same action for 3 times", "intent_template_id": 222},
    )


def test_log_results_are_oracle_labels(tmp_path: Path) -> None:
    for task in (3, 24, 7):
        render(tmp_path, str(task), page("t", "stop []"), task=task)
    lines = [
        "[Config file]: config_files/24.json", "[Result] (FAIL) config_files/24.json",
        "[Config file]: config_files/24.json", "[Result] (PASS) config_files/24.json",
        "[Config file]: /tmp/tmp8ab12/7.json", "[Unhandled Error] TimeoutError('page 3.json')",
        "[Config file]: config_files/3.json", "[Result] (FAIL) config_files/3.json",
        "Average score: 0.5",
    ]  # fmt: skip
    stamped = "".join(f"2023-09-01 10:00:00,123 - INFO - {line}\n" for line in lines)
    (tmp_path / "merged_log.txt").write_text(stamped, encoding="utf-8")
    assert list(load_labels(tmp_path)) == [
        LabelRecord(id="webarena.3", success=False, source="oracle"),
        LabelRecord(id="webarena.24", success=True, source="oracle"),
    ]
    assert [item.error for item in load(tmp_path) if isinstance(item, Trajectory)] == [
        None,
        "TimeoutError('page 3.json')",
        None,
    ]
    dates = {item.metadata["date"] for item in load(tmp_path) if isinstance(item, Trajectory)}
    assert dates == {"2023-09-01T10:00:00"}


def test_trials_have_own_ids_and_no_labels(tmp_path: Path) -> None:
    (tmp_path / "renders").mkdir()
    for trial in (0, 1):
        render(tmp_path / "renders", f"24_{trial}", page("t", "stop []"))
    lines = [
        "[Result] (PASS) c/24.json",
        "[Config file]: c/24.json",
        "[Unhandled Error] TimeoutError()",
    ]
    (tmp_path / "log_1.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "log_2.txt").mkdir()
    runs = [item for item in load(tmp_path) if isinstance(item, Trajectory)]
    assert [(item.id, item.task.id, item.error) for item in runs] == [
        ("webarena.24_0", "webarena.24", None),
        ("webarena.24_1", "webarena.24", None),
    ]
    assert list(load_labels(tmp_path)) == []


@pytest.mark.parametrize(
    ("text", "kind", "target", "value"),
    [
        (
            "click [1335] where [1335] is [1335] link '12 Reviews'",
            "click",
            "link '12 Reviews'",
            None,
        ),
        ("click [1335] where [1335] is link '12 Reviews'", "click", "link '12 Reviews'", None),
        (
            "type [164] [tea [green]] where [164] is [164] textbox 'Search'",
            "type",
            "textbox 'Search'",
            "tea [green]",
        ),
        ("type [5] [a [b] c] [0]", "type", "5", "a [b] c"),
        ("type [5] []", "type", "5", ""),
        ("hover [3]", "hover", "3", None),
        ("scroll [down]", "scroll", None, "down"),
        ("press [ctrl+a]", "press", None, "ctrl+a"),
        ("goto [http://x/[1]]", "goto", None, "http://x/[1]"),
        ("page_focus [2]", "focus_tab", None, "2"),
        ("go_back", "back", None, None),
        ("stop []", "stop", None, None),
        ("stop [two\nlines]", "stop", None, "two\nlines"),
        ("none", "other", None, None),
        ("click", "other", None, None),
        (
            'Attempt to perfom "click" on element "[9]" but no matching element found.',
            "other",
            None,
            None,
        ),
    ],
)
def test_actions_kinds_targets_and_values(
    text: str, kind: str, target: str | None, value: str | None
) -> None:
    action = parse_action(text)
    assert (action.kind, action.target, action.value, action.text) == (kind, target, value, text)


CONFIG = {
    "sites": ["shopping"],
    "task_id": 1,
    "require_login": False,
    "storage_state": None,
    "start_url": "__SHOPPING__/a |AND| __MAP__",
    "geolocation": None,
    "intent_template": "t",
    "instantiation_dict": {"n": 1},
    "intent": "Find tea",
    "require_reset": False,
    "intent_template_id": 3,
    "eval": {
        "eval_types": ["string_match"],
        "reference_answers": {"fuzzy_match": "N/A"},
        "reference_url": "__SHOPPING_ADMIN__/x",
        "program_html": [
            {"url": "last", "locator": "", "required_contents": {"must_include": ["a"]}}
        ],
    },
}


def test_placeholders_become_user_addresses(tmp_path: Path) -> None:
    (config,) = read_configs(
        json.dumps([CONFIG]).encode(),
        {"SHOPPING": 'http://s"hop:1/', "SHOPPING_ADMIN": "http://adm"},
    )
    assert config.start_url == 'http://s"hop:1/a |AND| __MAP__'
    assert (
        config.eval.reference_url,
        config.eval.reference_answers and config.eval.reference_answers.fuzzy_match,
    ) == ("http://adm/x", "N/A")
    assert config.eval.program_html[0].required_contents.must_include == ("a",)
    assert (make_task(config).id, make_task(config).site) == ("webarena.1", "shopping")


@pytest.fixture(scope="module")
def configs() -> tuple[TaskConfig, ...]:
    try:
        importlib.metadata.distribution("libwebarena")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package libwebarena is not installed: pip install --no-deps libwebarena")
    return load_configs({})


def test_tasks_have_the_published_counts(configs: tuple[TaskConfig, ...]) -> None:
    assert [config.task_id for config in configs] == list(range(812))
    assert len({config.intent_template_id for config in configs}) == 190
    assert Counter(
        config.eval.eval_types if len(config.eval.eval_types) == 1 else "two" for config in configs
    ) == {("string_match",): 325, ("program_html",): 282, ("url_match",): 66, "two": 129 + 10}
    assert Counter(
        tuple(sorted(c.eval.eval_types)) for c in configs if len(c.eval.eval_types) == 2
    ) == {("program_html", "url_match"): 129, ("string_match", "url_match"): 10}
    assert Counter(make_task(config).site for config in configs) == {
        "shopping": 187,
        "shopping_admin": 182,
        "gitlab": 180,
        "map": 109,
        "reddit": 106,
        "multi": 48,
    }
    references = [
        config.eval.reference_answers for config in configs if config.eval.reference_answers
    ]
    kinds = Counter(
        (bool(r.exact_match), bool(r.must_include), bool(r.fuzzy_match)) for r in references
    )
    assert kinds == {
        (True, False, False): 45,
        (False, True, False): 172,
        (False, False, True): 114,
        (False, True, True): 4,
    }
    assert sum(r.fuzzy_match == "N/A" for r in references) == 36
    locators = Counter(
        (
            "script"
            if check.locator.startswith(("document", "[...document"))
            else check.locator[:5],
            "exact" if check.required_contents.exact_match is not None else "include",
        )
        for config in configs
        for check in config.eval.program_html
    )
    assert locators == {
        ("script", "include"): 336,
        ("script", "exact"): 188,
        ("", "include"): 105,
        ("func:", "include"): 22,
    }
