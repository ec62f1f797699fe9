"""Training with TRL and PEFT, for real, of tiny random models: what is learnt, what is kept, and
going on after a stop.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.errors import UsageError
from prill.refine.training.checkpoints import last_checkpoint
from prill.refine.training.preflight import plan_training
from prill.refine.training.spec import TrainSpec, training_spec
from prill.refine.training.train import train_rows as train
from prill.refine.training.trainer import TrainingWatch, make_trainer
from tests.support.refine.launching import TRAINS, kill_training, train_on_two_processes

pytestmark = TRAINS
COLOURS = ("red", "green", "blue", "white")
ANSWERS = tuple(f"click [{number}]" for number in range(len(COLOURS)))
EYES = ("qwen2_5_vl", "qwen3_vl")
END = "<|im_end|>"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Four rows with pictures, four with two pictures or none, and four of text."""
    folder = tmp_path_factory.mktemp("rows")
    for number, colour in enumerate(COLOURS):
        Image.new("RGB", (100 + 40 * number, 90), colour).save(folder / f"{colour}.png")
    looks = {"type": "image"}
    files: dict[str, list[dict[str, Any]]] = {"pictures": [], "text": [], "mixed": []}
    for number, (colour, answer) in enumerate(zip(COLOURS, ANSWERS, strict=True)):
        said = [{"role": "assistant", "content": [{"type": "text", "text": answer}]}]
        where = {"task": f"task-{number % 2}", "trajectory": f"t{number}", "step": number}
        goal = {"type": "text", "text": "Goal: buy"}
        one = [{"role": "user", "content": [looks, goal]}]
        files["pictures"].append(
            {"images": [f"{colour}.png"], "prompt": one, "completion": said, **where}
        )
        several = [f"{colour}.png", "red.png"] if number % 2 else []
        two = [{"role": "user", "content": [*[looks] * len(several), goal]}]
        files["mixed"].append({"images": several, "prompt": two, "completion": said, **where})
        plain = [
            {"role": "system", "content": "Act."},
            {"role": "user", "content": f"Goal: {colour}"},
        ]
        files["text"].append(
            {"prompt": plain, "completion": [{"role": "assistant", "content": answer}], **where}
        )
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8"
        )
    return {name: folder / f"{name}.jsonl" for name in files}


def spec_of(model: Path, **changed: Any) -> TrainSpec:
    settings: dict[str, Any] = {
        "learning_rate": 1e-2,
        "rank": 8,
        "batch": 4,
        "micro_batch": 2,
        "dropout": 0.0,
    }
    return TrainSpec(model=str(model), **{**settings, "steps": 25, "log_every": 1, **changed})


@pytest.fixture(scope="module")
def trained(
    tiny_model: Callable[[str], Path],
    rows: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Path]:
    """The folder of an adapter for that model, trained to know four answers by heart."""

    @functools.cache
    def folder(kind: str) -> Path:
        trains: Any = "captioner" if kind == "qwen3_vl" else "policy"
        spec = spec_of(tiny_model(kind), trains=trains, held_out=0.0)
        read = rows["text" if kind == "qwen2" else "pictures"]
        return train(spec, read, tmp_path_factory.mktemp("trained") / kind)

    return folder


def figures(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "training.json").read_bytes())
    assert record["done"]
    found: dict[str, Any] = record["figures"]
    return found


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "adapter_model.safetensors"))


def assert_equal(one: Path, other: Path) -> None:
    """The same losses at every step, and the same weights, to the last bit."""
    import torch

    assert figures(one)["losses"] == figures(other)["losses"]
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("kind", [*EYES, "qwen2"])
def test_a_small_set_is_learnt_by_heart(kind: str, trained: Callable[[str], Path]) -> None:
    losses = [loss for _, loss in figures(trained(kind))["losses"]]
    assert losses[-1] < losses[0] / 5


@pytest.mark.parametrize(
    ("kind", "read"), [("qwen2_5_vl", "pictures"), ("qwen3_vl", "mixed"), ("qwen2", "text")]
)
def test_labels_are_the_answer_and_its_end(
    kind: str, read: str, tiny_model: Callable[[str], Path], rows: dict[str, Path], tmp_path: Path
) -> None:
    spec = spec_of(tiny_model(kind))
    plan = plan_training(spec, rows[read], tmp_path)
    trainer = make_trainer(spec, plan, tmp_path, TrainingWatch(), on_gpu=False)
    found, lengths = [], []
    for batch in trainer.get_train_dataloader():
        for labels, mask in zip(batch["labels"], batch["attention_mask"], strict=True):
            found.append(plan.base.tokenizer.decode(labels[labels != -100]))
            lengths.append(int(mask.sum()))
    assert sorted(found) == sorted(answer + END for answer in ANSWERS)
    # What was foretold without making the pictures is what is trained, but for the newline behind
    # the answer's end.
    newlines = sum(len(plan.base.tokenizer("\n")["input_ids"]) for _ in lengths)
    assert plan.facts.mean_tokens * len(lengths) == pytest.approx(sum(lengths), abs=newlines)
    assert plan.facts.longest <= max(lengths) <= plan.facts.longest + 1


def test_a_process_has_one_gpu(
    tiny_model: Callable[[str], Path],
    rows: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a machine with four, without a launcher, the batch is the one that was asked for."""
    spec = spec_of(tiny_model("qwen2"))
    plan = plan_training(spec, rows["text"], tmp_path)
    import transformers

    begun = transformers.TrainingArguments.__post_init__

    def seeing_four(arguments: Any) -> None:
        begun(arguments)
        arguments._n_gpu = 4

    monkeypatch.setattr(transformers.TrainingArguments, "__post_init__", seeing_four)
    trainer = make_trainer(spec, plan, tmp_path, TrainingWatch(), on_gpu=False)
    assert (trainer.args.n_gpu, trainer.args.train_batch_size) == (1, plan.facts.micro_batch)


@pytest.mark.parametrize(("kind", "read"), [("qwen2_5_vl", "mixed"), ("qwen2", "text")])
def test_prompts_are_not_scored_on_a_cpu(
    kind: str, read: str, tiny_model: Callable[[str], Path], rows: dict[str, Path], tmp_path: Path
) -> None:
    """The loss and its gradients are TRL's, but the head of the model sees no more than the
    answers.
    """
    import torch
    import trl

    spec = spec_of(tiny_model(kind))
    trainer = make_trainer(
        spec, plan_training(spec, rows[read], tmp_path), tmp_path, TrainingWatch(), on_gpu=False
    )
    batch = next(iter(trainer.get_train_dataloader()))
    answers = int((batch["labels"] != -100).any(dim=0).sum())
    seen: list[int] = []
    head = trainer.model.get_base_model().get_output_embeddings()
    head.register_forward_pre_hook(lambda layer, given: seen.append(given[0].shape[1]))
    # The adapter begins at zero, where most gradients are zero, too.
    learnt = [weight for weight in trainer.model.parameters() if weight.requires_grad]
    for weight in learnt:
        torch.nn.init.normal_(weight, std=0.1)
    losses, gradients = [], []
    for count in (None, torch.tensor(7)):
        for compute in (
            trainer.compute_loss,
            functools.partial(trl.SFTTrainer.compute_loss, trainer),
        ):
            trainer.model.zero_grad()
            loss = compute(trainer.model, dict(batch), num_items_in_batch=count)
            loss.backward()
            losses.append(loss.item())
            gradients.append([weight.grad.clone() for weight in learnt if weight.grad is not None])
    assert seen == [answers] * 2 and answers < batch["labels"].shape[1] / 2
    assert losses[::2] == pytest.approx(losses[1::2], rel=1e-5) and losses[0] > 0.1
    for ours, theirs in zip(gradients[::2], gradients[1::2], strict=True):
        assert any(gradient.abs().max() > 1e-3 for gradient in theirs)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", EYES)
def test_adapter_loaded_and_merged_agree(
    kind: str,
    trained: Callable[[str], Path],
    tiny_model: Callable[[str], Path],
    rows: dict[str, Path],
    tmp_path: Path,
) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText

    spec = spec_of(tiny_model(kind))
    plan = plan_training(spec, rows["pictures"], tmp_path)
    trainer = make_trainer(spec, plan, tmp_path, TrainingWatch(), on_gpu=False)
    batch = next(iter(trainer.get_train_dataloader()))
    base = AutoModelForImageTextToText.from_pretrained(tiny_model(kind))
    with torch.inference_mode():
        before = base(**batch).logits
        loaded = PeftModel.from_pretrained(base, trained(kind)).eval()
        with_adapter = loaded(**batch).logits
        merged = loaded.merge_and_unload()(**batch).logits
    assert not torch.allclose(before, with_adapter, atol=1e-1)
    torch.testing.assert_close(with_adapter, merged, rtol=1e-4, atol=1e-3)


def test_language_targets_leave_eyes_alone(trained: Callable[[str], Path]) -> None:
    names = weights(trained("qwen2_5_vl"))
    assert names
    assert not [name for name in names if "visual" in name]
    assert not [name for name in names if "lm_head" in name]


def test_card_tells_data_and_settings(
    trained: Callable[[str], Path], rows: dict[str, Path]
) -> None:
    from hashlib import sha256

    card = (trained("qwen3_vl") / "README.md").read_text(encoding="utf-8")
    assert "A captioner" in card
    assert sha256(rows["pictures"].read_bytes()).hexdigest() in card
    assert "| learning_rate | 0.01 |" in card
    assert "transformers 5" in card
    assert f"| 25 | {figures(trained('qwen3_vl'))['losses'][-1][1]:.4f} |" in card


def test_done_is_not_done_again(
    trained: Callable[[str], Path], tiny_model: Callable[[str], Path], rows: dict[str, Path]
) -> None:
    folder = trained("qwen2")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    spec = spec_of(tiny_model("qwen2"))
    steps: list[object] = []
    assert train(spec, rows["text"], folder, progress=steps.append) == folder
    assert (steps, {path: path.stat().st_mtime_ns for path in folder.rglob("*")}) == ([], before)


def test_other_settings_do_not_go_on(
    trained: Callable[[str], Path], tiny_model: Callable[[str], Path], rows: dict[str, Path]
) -> None:
    with pytest.raises(UsageError, match=r"learning_rate \(0.01 there, 0.02 here\)"):
        train(spec_of(tiny_model("qwen2"), learning_rate=2e-2), rows["text"], trained("qwen2"))


class Resumable:
    """A training of twelve steps with dropout, whose end is known."""

    def __init__(self, model: Path, rows: Path, folder: Path) -> None:
        self.rows = rows
        self.settings = {
            "model": str(model),
            "learning_rate": 1e-2,
            "steps": 12,
            "dropout": 0.2,
            "checkpoint_every": 4,
        }
        self.settings |= {"rank": 4, "micro_batch": 2, "log_every": 1}
        self.spec = training_spec("paper", **self.settings)
        self.whole = train(self.spec, rows, folder / "whole")

    def on(self, folder: Path, progress: Callable[[Any], object] = lambda progress: None) -> Path:
        return train(self.spec, self.rows, folder, progress=progress)


@pytest.fixture(scope="module")
def resumable(
    tiny_model: Callable[[str], Path],
    rows: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Resumable:
    return Resumable(tiny_model("qwen3_vl"), rows["pictures"], tmp_path_factory.mktemp("resumable"))


def test_ctrl_c_keeps_a_checkpoint(resumable: Resumable, tmp_path: Path) -> None:
    folder, before = tmp_path / "stopped", signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="stopped after step 6 of 12"):
        resumable.on(folder, lambda now: now.step == 6 and os.kill(os.getpid(), signal.SIGINT))
    assert last_checkpoint(folder) == folder / "checkpoints/checkpoint-6"
    assert signal.getsignal(signal.SIGINT) is before
    steps: list[int] = []
    assert_equal(resumable.on(folder, lambda now: steps.append(now.step)), resumable.whole)
    assert steps == list(range(7, 13))


def test_a_full_disk_keeps_the_last_checkpoint(resumable: Resumable, tmp_path: Path) -> None:
    folder, limits = tmp_path / "full", resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(now: Any) -> None:
        if now.step == 7:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))

    try:
        with pytest.raises(
            UsageError, match=r"checkpoint-8: cannot be written: .*resumes from checkpoint-4"
        ):
            resumable.on(folder, fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["checkpoint-4"]
    assert_equal(resumable.on(folder), resumable.whole)


def test_a_killed_training_goes_on(resumable: Resumable, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    kill_training("policy", resumable.rows, folder, resumable.settings, "--preset", "paper")
    assert_equal(resumable.on(folder), resumable.whole)


def test_options_reach_the_trainer(
    trained: Callable[[str], Path],
    tiny_model: Callable[[str], Path],
    rows: dict[str, Path],
    tmp_path: Path,
) -> None:
    """Gradient descent without momentum takes other steps than AdamW."""
    spec = spec_of(tiny_model("qwen2"), trains="policy", options={"optim": "sgd"})
    other = figures(train(spec, rows["text"], tmp_path / "other"))["losses"]
    usual = figures(trained("qwen2"))["losses"]
    assert other[0] == usual[0] and other[5] != usual[5]


def test_two_processes_make_one_adapter(
    tiny_model: Callable[[str], Path], rows: dict[str, Path], tmp_path: Path
) -> None:
    words = ("policy", rows["pictures"], "-o", tmp_path / "out", "--preset", "paper", "--steps", 2)
    train_on_two_processes(*words, "--model", tiny_model("qwen2_5_vl"), "--checkpoint-every", 2)
    record = json.loads((tmp_path / "out/training.json").read_bytes())
    assert (record["processes"], record["figures"]["steps"]) == (2, 2)
    assert len(list((tmp_path / "out/checkpoints/checkpoint-2").glob("rng_state_*.pth"))) == 2
    assert weights(tmp_path / "out")
