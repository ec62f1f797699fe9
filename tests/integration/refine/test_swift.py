"""Training by ms-swift: what it is told, and what comes back. The engine is a test double that
reads the same command line.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.errors import EndpointError, UsageError
from prill.models.local.trained import expect_trained
from prill.refine.training.spec import TrainSpec, training_spec
from prill.refine.training.train import train_rows as train

# Writes down what it was told, and each step as ms-swift does; --stop-at N ends with an error
# there, --hang waits for ever.
ENGINE = """
import json, signal, sys
from pathlib import Path

words = sys.argv[1:]
told = dict(zip(words[::2], words[1::2]))
out = Path(told["--output_dir"])
out.mkdir(exist_ok=True)
with open(out.parent / "told.jsonl", "a") as file:
    file.write(json.dumps(told) + "\\n")
steps, every = int(told["--max_steps"]), int(told["--save_steps"])
first = int(told.get("--resume_from_checkpoint", "-0").rpartition("-")[2])
for step in range(first + 1, steps + 1):
    if told.get("--stop-at") == str(step) and not first:
        print("\\x1b[31mRuntimeError: the rows\\x1b[0m are odd", file=sys.stderr)
        sys.exit(1)
    if step % every == 0 or step == steps:
        folder = out / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps({"r": 4, "base_model_name_or_path": told["--model"]}))
        (folder / "adapter_model.safetensors").write_bytes(bytes([step]))
        (folder / "optimizer.pt").write_bytes(b"moments")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    with open(out / "logging.jsonl", "a") as file:
        file.write(json.dumps({"loss": 1 / step, "global_step/max_steps": f"{step}/{steps}"}) + "\\n")
        if "--val_dataset" in told:
            file.write(json.dumps({"eval_loss": 2 / step, "global_step/max_steps": f"{step}/{steps}"}) + "\\n")
    if told.get("--hang"):
        signal.pause()
"""  # noqa: E501


@pytest.fixture
def engine(tmp_path: Path) -> str:
    """The interpreter of an environment with ms-swift, as far as it is asked."""
    (tmp_path / "engine.py").write_text(ENGINE)
    path = tmp_path / "python"
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = -I ]; then echo \'{{"ms-swift": "4.6.0"}}\'; exit; fi\n'
        f'test "$1 $2 $3" = "-m swift.cli.main sft" || exit 9\nshift 3\nexec {sys.executable} '
        f'{tmp_path}/engine.py "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    Image.new("RGB", (40, 30), "red").save(tmp_path / "a.png")
    lines = []
    for number in range(6):
        asked = [{"type": "image"}, {"type": "text", "text": f"Goal {number} <image>"}]
        prompt = [{"role": "user", "content": asked}]
        answer = [{"role": "assistant", "content": f"click [{number}]"}]
        lines.append(
            {"images": ["a.png"], "prompt": prompt, "completion": answer, "task": f"t{number}"}
        )
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def spec_of(engine: str | None, **changed: Any) -> TrainSpec:
    settings: dict[str, Any] = {
        "model": "org/m",
        "steps": 4,
        "batch": 2,
        "checkpoint_every": 1,
        **changed,
    }
    return TrainSpec(engine="swift", engine_python=engine, **settings)


def told(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "told.jsonl").read_text().splitlines()]


def test_settings_become_options_of_swift(engine: str, rows: Path, tmp_path: Path) -> None:
    spec = training_spec("cogagent-18b", engine_python=engine, steps=2, checkpoint_every=1)
    (options,) = told(train(spec, rows, tmp_path / "out"))
    wanted = {
        "--model": "zai-org/cogagent-chat-hf",
        "--model_type": "cogagent_chat",
        "--tuner_type": "lora",
        "--lora_rank": "50",
        "--lora_alpha": "1",
        "--lora_dropout": "0.0",
        "--target_regex": spec.targets,
        "--learning_rate": "1e-05",
        "--lr_scheduler_type": "cosine",
        "--warmup_steps": "1",
        "--adam_beta2": "0.95",
        "--max_grad_norm": "0.1",
        "--per_device_train_batch_size": "1",
        "--gradient_accumulation_steps": "32",
        "--max_steps": "2",
        "--gradient_checkpointing": "false",
        "--torch_dtype": "bfloat16",
        "--split_dataset_ratio": "0",
    }
    assert {name: options.get(name) for name in wanted} == wanted
    assert {"--resume_from_checkpoint", "--val_dataset", "--max_length"}.isdisjoint(options), (
        "what is not set is left to it"
    )


@pytest.mark.parametrize(
    ("targets", "options"),
    [
        (
            "language",
            {"--target_modules": "all-linear", "--freeze_vit": "true", "--freeze_aligner": "true"},
        ),
        (
            "all",
            {
                "--target_modules": "all-linear",
                "--freeze_vit": "false",
                "--freeze_aligner": "false",
            },
        ),
        (".*q_proj", {"--target_regex": ".*q_proj"}),
    ],
)
def test_targets_are_put_in_its_words(
    engine: str, rows: Path, tmp_path: Path, targets: str, options: dict[str, str]
) -> None:
    (given,) = told(train(spec_of(engine, targets=targets, steps=1), rows, tmp_path / "out"))
    names = ("--target_modules", "--target_regex", "--freeze_vit", "--freeze_aligner")
    assert {name: given[name] for name in names if name in given} == options


def test_rows_reach_swift_as_it_reads_them(
    engine: str, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # so that they can be looked at
    monkeypatch.setattr("prill.refine.training.swift.Path.unlink", lambda *_, **__: None)
    folder = train(spec_of(engine, held_out=0.3), rows, tmp_path / "out")
    (options,) = told(folder)
    files = [
        Path(options[name]).read_text().splitlines() for name in ("--dataset", "--val_dataset")
    ]
    assert [len(lines) for lines in files] == [4, 2]
    row = json.loads(files[0][0])
    number = row["messages"][-1]["content"][-2]
    assert row["messages"] == [
        {"role": "user", "content": f"<image>Goal {number} < image >"},
        {"role": "assistant", "content": f"click [{number}]", "loss": True},
    ]
    assert row["images"] == [str(tmp_path / "a.png")]
    record = json.loads((folder / "training.json").read_bytes())
    assert record["figures"]["held_out_losses"] == [[1, 2.0], [2, 1.0], [3, 2 / 3], [4, 0.5]]


def test_adapter_comes_back_as_from_every_training(engine: str, rows: Path, tmp_path: Path) -> None:
    steps: list[tuple[int, int, float | None]] = []
    folder = train(
        spec_of(engine),
        rows,
        tmp_path / "out",
        progress=lambda now: steps.append((now.step, now.steps, now.loss)),
    )
    assert (folder / "adapter_model.safetensors").read_bytes() == b"\x04", "that of the last step"
    assert not (folder / "optimizer.pt").exists()
    expect_trained(folder)
    record = json.loads((folder / "training.json").read_bytes())
    assert (record["done"], record["versions"], record["counts"]["learnt"]) == (
        True,
        {"ms-swift": "4.6.0"},
        6,
    )
    assert steps[-1] == (4, 4, 0.25)
    hashed = json.loads((folder / "training.json").read_bytes())["sha256"]
    assert {"adapter_config.json", "adapter_model.safetensors"} <= hashed.keys()
    assert train(spec_of(engine), rows, folder) == folder
    assert len(told(folder)) == 1, "a training that is done is not begun again"


def test_failed_training_says_why_and_resumes(engine: str, rows: Path, tmp_path: Path) -> None:
    spec, folder = spec_of(engine, options={"stop-at": 3}), tmp_path / "out"
    with pytest.raises(EndpointError) as failure:
        train(spec, rows, folder)
    message = str(failure.value)
    assert message.startswith(
        f"ms-swift 4.6.0 failed (status 1; its output is in {folder / 'swift.log'}); its "
        "last lines:"
    )
    assert message.endswith("\n  RuntimeError: the rows are odd")
    with pytest.raises(UsageError, match="the training is not finished"):
        expect_trained(folder)
    train(spec, rows, folder)
    assert [Path(options.get("--resume_from_checkpoint", "")).name for options in told(folder)] == [
        "",
        "checkpoint-2",
    ]
    assert (folder / "adapter_model.safetensors").read_bytes() == b"\x04"


def test_stopped_training_ends_the_engine(engine: str, rows: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    with pytest.raises(KeyboardInterrupt, match="resumes from checkpoint-1"):
        train(
            spec_of(engine, options={"hang": "yes"}),
            rows,
            tmp_path / "out",
            progress=lambda now: stop.set(),
            stop=stop,
        )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"engine_python": "/nowhere/python"},
            "engine_python: /nowhere/python is not a Python interpreter; give the Python "
            "interpreter of",
        ),
        (
            {"engine_python": sys.executable},
            f"engine_python: ms-swift is not installed in {sys.executable}",
        ),
        (
            {"engine_python": "/bin/false"},
            "engine_python: /bin/false does not run as a Python interpreter",
        ),
        ({"method": "qlora"}, "method: qlora needs engine trl"),
        ({"trains": "planner", "method": "full"}, "engine: swift trains policies and captioners"),
        ({"overlong": "error"}, "overlong: ms-swift drops longer rows"),
    ],
)
def test_what_swift_cannot_do_is_refused(
    engine: str, rows: Path, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    python = changed.pop("engine_python", engine)
    with pytest.raises(UsageError) as refusal:
        train(spec_of(python, **changed), rows, tmp_path / "out")
    assert str(refusal.value).startswith(message)
    assert not (tmp_path / "out").exists()
