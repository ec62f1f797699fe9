"""Writes folders in the formats of the programs of Berkeley-NLP/Agent-Eval-Refine. Each writer has
a short equivalent here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

QUESTION = 'What steps do I need to take to "{}"?(with grounding)'
REPLY = "Plan: 1. Open it. 2. Change it.\nNext Action: Touch the icon.\nGrounded Operation:{}"


def picture(path: Path, shade: int = 0) -> None:
    """Writes a small image with its own content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (39, 84), (shade % 256, 40, 90)).save(path)


def rendered_config(number: int, goal: str, **more: Any) -> str:
    """Returns RenderHelper's text of a configuration
    (exps/webarena_exp/browser_env/helper_functions.py): `key: value` lines.
    """
    config = {
        "sites": ["shopping"],
        "task_id": number,
        "require_login": True,
        "storage_state": "./.auth/shopping_state.json",
        "start_url": "http://shop.example:7770",
        "geolocation": None,
        "intent_template": "{{goal}}",
        "instantiation_dict": {"goal": goal},
        "intent": goal,
        "require_reset": False,
        "eval": {"eval_types": ["string_match"], "reference_answers": {"exact_match": "SECRET"}},
        "intent_template_id": 139,
        **more,
    }
    return "".join(f"{key}: {value}\n" for key, value in config.items())


def webarena(
    root: Path, tasks: Sequence[tuple[str, list[str], bool]], *, config: str | None = "text"
) -> Path:
    """Writes as unify_webarena.ipynb does: `uid`, `task_idx` and `task_uid` are strings, `config`
    is the text of the render's `<pre>`, or null.

    `tasks` holds the answer, the raw actions and WebArena's own result.
    """
    log, judgements, captions = [], [], {}
    for number, (answer, actions, passed) in enumerate(tasks, 40):
        steps = []
        for i, action in enumerate(actions):
            picture(root / f"images/{number}_{i}.png", 10 * number + i)
            steps.append({"img": f"{number}_{i}.png", "other": {"raw_action": action}})
            # prepare_caps_sub.py --only-last-two
            captions[f"{number}_{i}"] = (
                f"# Page {i}" if i >= len(actions) - 2 else "SKIP, NOT LAST TWO"
            )
        goal = f"Tell me the price of item {number}"
        text = rendered_config(number, goal)
        log.append(
            {
                "uid": str(number),
                "intent": goal,
                "response": answer,
                "other": {"config": text if config else None},
                "steps": steps,
            }
        )
        judgements.append(
            {
                "dataset_path": root.name,
                "task_idx": str(number),
                "task_uid": str(number),
                "user_uid": "WebArena",
                "annotation": "Success" if passed else "Failure",
                "comment": "",
            }
        )
    return _written(root, log, gt=judgements, captions={"ocr-sft-qwenvl-v2": captions})


def ios(
    root: Path,
    episodes: Sequence[tuple[str, list[tuple[str, str, str]]]],
    annotation: str = "Success",
) -> Path:
    """Writes as unify_ios_data.ipynb over collect_trajectories.py does: `other` is the whole step,
    paths are those of another machine, and there is one more image than steps. `episodes` holds a
    goal and (operation, translated action, idb action) of each step.
    """
    log, judgements = [], []
    for number, (goal, operations) in enumerate(episodes):
        uid, steps = f"170643405{number}.573745", []
        there = f"/Users/someone/Desktop/ios_data/{root.name}/images/{uid}"
        for i in range(len(operations) + 1):
            picture(root / f"images/{uid}-{i}.jpg", 20 * number + i)
        for i, (operation, translated, idb) in enumerate(operations):
            step = {
                "observation": f"{there}-{i}.jpg",
                "raw_action": REPLY.format(operation),
                "translated_action": translated,
                "idb_action": idb,
                "next_observation": f"{there}-{i + 1}.jpg",
                "done": i == len(operations) - 1,
                "task": QUESTION.format(goal),
            }
            steps.append({"img": f"{uid}-{i}.jpg", "other": step})
        log.append({"uid": uid, "intent": QUESTION.format(goal), "response": None, "steps": steps})
        judgements.append(_app_line(root, number, uid, annotation))
    return _written(root, log, v0=judgements)


def android(
    root: Path, goal: str, actions: Sequence[tuple[str, str]], annotation: str = "Failure"
) -> Path:
    """Writes as unify_android_agent_data.ipynb over runner.py does. `actions` holds the action's
    text and the model's reply.
    """
    uid = "0323_172117-dc2f7adf"
    steps = []
    for i, (action, output) in enumerate(actions):
        picture(root / f"images/{uid}_{i}.jpg", i)
        step = {
            "step": i,
            "obs": f"output_autoui/images/{uid}_{i}.jpg",
            "action": action,
            "actor_info": {"prompt": f"Previous Actions: Goal: {goal}</s>", "output": output},
            "action_success": True,
            "info": {},
            "task": goal,
        }
        steps.append({"img": f"{uid}_{i}.jpg", "other": step})
    log = [{"uid": uid, "intent": goal, "response": None, "steps": steps}]
    return _written(root, log, v0=[_app_line(root, 0, uid, annotation)])


def reflexion(root: Path, number: int, trial: int, actions: Sequence[str], score: float) -> Path:
    """Writes as run_reflexion.py does: `img` is the path that was passed to save_img, `uid` a
    number, `config` the whole object.
    """
    steps = []
    for i, action in enumerate(actions):
        name = f"{number}_{trial}_{i}.png"
        picture(root / "images" / name, i)
        tree = "[1] RootWebArea 'Shop'\n\t[7] link 'Cart'"
        steps.append(
            {
                "img": f"results/run/images/{name}",
                "accessibility_tree": tree,
                "url": "http://shop.example:7770/",
            }
        )
        steps[-1]["other"] = {"raw_action": action}  # type: ignore[assignment]
    config = {
        "task_id": number,
        "sites": ["shopping"],
        "intent": "g",
        "start_url": "http://shop.example:7770",
        "eval": {"x": "SECRET"},
    }
    record = {
        "uid": number,
        "trail_idx": trial,
        "memory": [],
        "intent": "Find the cart",
        "response": "",
        "steps": steps,
        "other": {"config": config},
        "oracle_score": score,
        "captions": ["# Shop", "# Cart"],
        "score": score,
        "status": "PASSED",
        "score_source": "gt",
    }
    (root / "records").mkdir(parents=True, exist_ok=True)
    (root / f"records/{number}_{trial}.json").write_text(
        json.dumps(record, indent=4), encoding="utf-8"
    )
    return root


def _app_line(root: Path, index: int, uid: str, annotation: str) -> dict[str, Any]:
    """Returns a line as annotate_app.py writes it: the index is a number."""
    who = {"user_uid": "ann", "annotation": annotation, "comment": ""}
    return {"dataset_path": root.name, "task_idx": index, "task_uid": uid, **who}


def _written(
    root: Path,
    log: list[Any],
    *,
    captions: dict[str, Any] | None = None,
    **evals: list[dict[str, Any]],
) -> Path:
    for name in ("evals", "captions"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "trajectory_log.json").write_text(json.dumps(log, indent=2), encoding="utf-8")
    for name, rows in evals.items():
        (root / f"evals/{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )
    for name, texts in (captions or {}).items():
        (root / f"captions/{name}.json").write_text(json.dumps(texts), encoding="utf-8")
    return root
