"""What a training says before it begins: settings, rows, pictures, models and folders with which it
cannot be done.
"""

from __future__ import annotations

import importlib.util
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

from prill.cli import main
from prill.config.registry import OptionError
from prill.errors import EndpointError, MissingExtraError, UsageError
from prill.refine.training.preflight import check_memory
from prill.refine.training.samples import read_rows, split
from prill.refine.training.spec import TrainSpec, presets, training_spec
from prill.refine.training.train import check_training
from prill.refine.training.train import train_rows as train
from prill.refine.training.weights import bounded_size
from tests.support.refine.launching import QUIET, needs_training

pytestmark = QUIET
ASKED = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Goal: buy"}]}]
SAID = [{"role": "assistant", "content": [{"type": "text", "text": "click [1]"}]}]


@pytest.fixture
def picture(tmp_path: Path) -> str:
    Image.new("RGB", (224, 140), "red").save(tmp_path / "a.png")
    return "a.png"


def write(folder: Path, *rows: Any) -> Path:
    path = folder / "rows.jsonl"
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows),
        encoding="utf-8",
    )
    return path


def text_row(**changed: Any) -> dict[str, Any]:
    asked = [{"role": "user", "content": "Goal: buy"}]
    return {
        "prompt": asked,
        "completion": [{"role": "assistant", "content": "click [1]"}],
        **changed,
    }


def test_presets_have_the_papers_figures() -> None:
    paper = training_spec("paper", model="m")
    assert (
        paper.rank,
        paper.learning_rate,
        paper.schedule,
        paper.warmup,
        paper.batch,
        paper.steps,
    ) == ((50, 1e-5, "cosine", 0.2, 4, 3000))  # arXiv 2404.06474, as in its appendix on iOS
    captioner = training_spec("captioner-paper", trains="captioner")
    assert (captioner.method, captioner.batch, captioner.epochs, captioner.learning_rate) == (
        "full",
        72,
        3,
        1e-5,
    )
    assert (captioner.schedule, captioner.weight_decay, captioner.warmup) == ("cosine", 0.1, 0.01)
    assert all(preset.source for preset in presets().values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "papre"}, r"unknown preset 'papre' \(did you mean 'paper'\?\)"),
        ({"preset": "paper"}, "model is missing"),
        ({"preset": "paper", "model": "m", "rank": 0}, "rank: Expected `int` >= 1"),
        ({"model": "m", "learning_rat": 1.0}, r"learning_rat: .*did you mean 'learning_rate'"),
        ({"model": "m", "method": "dora"}, "method: Invalid enum value 'dora'"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        training_spec(**options)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "rows.jsonl:2: "),
        ({"prompt": ASKED}, "rows.jsonl:2: .*completion"),
        (
            {"prompt": ASKED, "completion": SAID},
            "rows.jsonl:2: has 0 images, but 1 placeholders for them",
        ),
        (
            {"prompt": ASKED, "completion": SAID, "images": ["a.png", "a.png"]},
            "has 2 images, but 1 placeholders",
        ),
        ({"prompt": [], "completion": SAID}, "rows.jsonl:2: .*prompt"),
        (
            text_row(completion=[{"role": "assistant", "content": " "}]),
            "rows.jsonl:2: the completion is empty",
        ),
        (
            text_row(completion=[{"role": "user", "content": "x"}]),
            "rows.jsonl:2: .*the completion must be that turn",
        ),
    ],
)
def test_broken_rows_name_their_line(row: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        read_rows(write(tmp_path, text_row(), row))


def test_a_captioner_needs_pictures(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rows.jsonl:1: has no image"):
        read_rows(write(tmp_path, text_row()), pictures=True)


def test_no_task_is_on_both_sides(tmp_path: Path) -> None:
    rows = [text_row(trajectory=f"t{number % 10}", step=number) for number in range(40)]
    samples = read_rows(write(tmp_path, *rows)).samples
    learnt, held_out = split(samples, 0.3)
    of_learnt, of_held_out = ({sample.group for sample in some} for some in (learnt, held_out))
    assert (len(of_learnt), len(of_held_out), of_learnt & of_held_out) == (7, 3, set())
    # Rows that come later move none of them across, as long as the share allows it.
    assert {sample.group for sample in split(samples[:20], 0.3)[1]} == of_held_out


@needs_training
def test_pictures_are_opened_beforehand(
    tmp_path: Path, picture: str, tiny_model: Callable[[str], Path]
) -> None:
    whole = (tmp_path / picture).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    header = b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    huge = (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + header
        + struct.pack(">I", zlib.crc32(header))
    )
    (tmp_path / "huge.png").write_bytes(huge)
    names = (picture, "cut.png", "gone.png", "huge.png")
    rows = [{"prompt": ASKED, "completion": SAID, "images": [name]} for name in names]
    broken = r"3 images cannot be read:\n.*:2: .*cut.png.*\n.*:3: .*gone.png is missing\n.*:4: .*huge.png"  # noqa: E501
    with pytest.raises(UsageError, match=broken):
        check_training(
            TrainSpec(model=str(tiny_model("qwen2_5_vl"))), write(tmp_path, *rows), tmp_path / "out"
        )


@needs_training
def test_a_model_of_text_takes_no_pictures(
    tmp_path: Path, picture: str, tiny_model: Callable[[str], Path]
) -> None:
    rows = write(tmp_path, text_row(), {"prompt": ASKED, "completion": SAID, "images": [picture]})
    with pytest.raises(
        UsageError, match=r"rows.jsonl:2: the row has an image, but .* does not accept images"
    ):
        check_training(TrainSpec(model=str(tiny_model("qwen2"))), rows, tmp_path / "out")


@needs_training
def test_long_rows_are_dropped_and_counted(
    tmp_path: Path, picture: str, tiny_model: Callable[[str], Path]
) -> None:
    long = text_row(prompt=[{"role": "user", "content": "Goal: buy. " * 200}])
    pictured = {"prompt": ASKED, "completion": SAID, "images": [picture]}
    rows, model = write(tmp_path, text_row(), long, pictured), str(tiny_model("qwen3_vl"))
    facts = check_training(TrainSpec(model=model, max_length=120), rows, tmp_path / "out")
    assert (facts.rows, facts.learnt, facts.overlong, facts.limit) == (3, 2, 1, 120)
    # A picture of 224 x 140 pixels has 28 places of 32 x 32; they count, and are dropped with their
    # row, never cut.
    assert check_training(TrainSpec(model=model, max_length=50), rows, tmp_path / "out").learnt == 1
    with pytest.raises(UsageError, match=r"rows.jsonl:2: 1 of 3 rows are longer than 120 tokens"):
        check_training(
            TrainSpec(model=model, max_length=120, overlong="error"), rows, tmp_path / "out"
        )
    with pytest.raises(UsageError, match="3 of 3 rows are longer than 8 tokens"):
        check_training(TrainSpec(model=model, max_length=8), rows, tmp_path / "out")


@needs_training
def test_fewer_pixels_are_fewer_tokens(
    tmp_path: Path, picture: str, tiny_model: Callable[[str], Path]
) -> None:
    rows, model = (
        write(tmp_path, {"prompt": ASKED, "completion": SAID, "images": [picture]}),
        str(tiny_model("qwen3_vl")),
    )
    whole, small = (
        check_training(TrainSpec(model=model, max_pixels=most), rows, tmp_path).longest
        for most in (10**6, 10**4)
    )
    # places of 32 x 32 pixels in 224 x 140, and in what has no more than 10,000
    assert whole - small == 7 * 4 - 3 * 2


@needs_training
def test_adapter_size_is_foretold(tmp_path: Path, tiny_model: Callable[[str], Path]) -> None:
    spec = TrainSpec(model=str(tiny_model("qwen2")), rank=3, steps=1, batch=1)
    rows = write(tmp_path, text_row())
    facts = check_training(spec, rows, tmp_path / "out")
    from safetensors.torch import load_file

    weights = load_file(train(spec, rows, tmp_path / "out") / "adapter_model.safetensors")
    assert facts.trained == sum(weight.numel() for weight in weights.values())


@needs_training
def test_all_weights_can_be_trained(tmp_path: Path, tiny_model: Callable[[str], Path]) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    base = tiny_model("qwen2")
    rows = write(tmp_path, text_row(), text_row())
    out = train(
        TrainSpec(model=str(base), method="full", steps=2, batch=2, learning_rate=1e-2),
        rows,
        tmp_path / "out",
    )
    before, after = (
        AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (base, out)
    )
    assert before.keys() == after.keys()
    assert not torch.equal(before["model.embed_tokens.weight"], after["model.embed_tokens.weight"])


@needs_training
def test_a_broken_model_is_one_error(tmp_path: Path) -> None:
    rows = write(tmp_path, text_row())
    with pytest.raises(UsageError, match="not a model folder"):
        check_training(TrainSpec(model=str(tmp_path)), rows, tmp_path / "out")
    (tmp_path / "config.json").write_text('{"model_type": ', encoding="utf-8")
    with pytest.raises(EndpointError, match="cannot be used"):
        check_training(TrainSpec(model=str(tmp_path)), rows, tmp_path / "out")


@needs_training
@pytest.mark.parametrize("targets", ["nothing_of_this", "(", "lm_head"])
def test_targets_that_fit_nothing_are_told(
    targets: str, tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    spec = TrainSpec(model=str(tiny_model("qwen2")), targets=targets)
    with pytest.raises(OptionError, match="targets"):
        check_training(spec, write(tmp_path, text_row()), tmp_path / "out")


@needs_training
def test_batches_that_do_not_divide_are_told(
    tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    spec = TrainSpec(model=str(tiny_model("qwen2")), batch=8, micro_batch=3)
    with pytest.raises(OptionError, match="micro_batch: 3 does not divide the 8 rows"):
        check_training(spec, write(tmp_path, text_row()), tmp_path / "out")


@needs_training
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neftune_noise": 5.0}, "SFTConfig has no 'neftune_noise'.*'neftune_noise_alpha'"),
        ({"learning_rate": 1e-3}, "learning_rate is determined by the settings"),
    ],
)
def test_options_of_the_trainer_are_checked(
    tmp_path: Path, tiny_model: Callable[[str], Path], options: dict[str, Any], message: str
) -> None:
    (tmp_path / "own.toml").write_text(
        "preset = 'small-text'\n[options]\n"
        + "".join(f"{name} = {value}\n" for name, value in options.items())
    )
    spec = training_spec(str(tmp_path / "own.toml"), model=str(tiny_model("qwen2")))
    with pytest.raises(OptionError, match=message):
        check_training(spec, write(tmp_path, text_row()), tmp_path / "out")


@needs_training
@pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed"
)
def test_qlora_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match="pip install bitsandbytes"):
        check_training(
            TrainSpec(model="m", method="qlora"), write(tmp_path, text_row()), tmp_path / "out"
        )


@needs_training
def test_a_new_start_keeps_the_old_one(tmp_path: Path, tiny_model: Callable[[str], Path]) -> None:
    rows, out = write(tmp_path, text_row()), tmp_path / "out"
    for rank in (1, 2):
        train(
            TrainSpec(model=str(tiny_model("qwen2")), rank=rank, steps=1, batch=1),
            rows,
            out,
            resume=rank == 1,
        )
    ranks = [
        json.loads((folder / "adapter_config.json").read_bytes())["r"]
        for folder in (out, tmp_path / "out.bak")
    ]
    assert ranks == [2, 1]


@needs_training
def test_a_dry_run_writes_nothing(
    tmp_path: Path,
    picture: str,
    tiny_model: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = write(tmp_path, *[{"prompt": ASKED, "completion": SAID, "images": [picture]}] * 3)
    before = sorted(tmp_path.rglob("*"))
    words = [
        "train",
        "captioner",
        str(rows),
        "-o",
        str(tmp_path / "out"),
        "--model",
        str(tiny_model("qwen2_5_vl")),
    ]
    assert main([*words, "--held-out", "0", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "3 to learn from" in told
    assert "1, all readable" in told
    assert "3 of 72 rows (72 x 1 on each of 1)" in told
    assert main([*words, "--held-out", "0", "--dry-run", "--json", "--batch", "4"]) == 0
    assert json.loads(capsys.readouterr().out)["accumulation"] == 4
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (600, 400), (3000, 500)])
def test_pixel_limit_enlarges_no_picture_of_idefics(
    width: int, height: int, torchvision_beside_cpu_torch: Callable[[], None]
) -> None:
    """Its processor takes `longest_edge` for a side: 1,310,720 there would enlarge each picture as
    far as it goes.
    """
    torchvision_beside_cpu_torch()
    module = pytest.importorskip(
        "transformers.models.idefics3.image_processing_pil_idefics3", reason="no transformers"
    )
    size = bounded_size({"longest_edge": 1456}, 640 * 640)
    side = size["longest_edge"]
    sent = module.get_resize_output_image_size(
        numpy.zeros((3, height, width)), resolution_max_side=side
    )
    assert sent[0] * sent[1] <= 640 * 640
    assert bounded_size({"longest_edge": 1456}, 10_000_000) == {"longest_edge": 1456}


def test_pixel_limit_of_qwen_is_an_area() -> None:
    assert bounded_size({"shortest_edge": 3_136, "longest_edge": 12_845_056}, 1_310_720) == {
        "shortest_edge": 3_136,
        "longest_edge": 1_310_720,
    }
    # the preset's limit is larger: it enlarges no picture
    small = {"shortest_edge": 3_136, "longest_edge": 33_600}
    assert bounded_size(small, 1_310_720) == small


def test_training_that_cannot_fit_is_refused() -> None:
    full = training_spec("captioner-paper", trains="captioner", model="m")
    with pytest.raises(
        UsageError, match=r"needs about 155 GB, but the device has 141 GB; train an adapter"
    ):
        check_memory(full, 155 * 10**9, 141 * 10**9)
    with pytest.raises(UsageError, match="39 GB on each of 4 devices"):
        check_memory(full, 155 * 10**9, 24 * 10**9, shards=4)
    check_memory(full, 155 * 10**9, 141 * 10**9, shards=2)
    with pytest.raises(UsageError, match="micro_batch"):
        check_memory(training_spec("captioner", trains="captioner"), 30 * 10**9, 24 * 10**9)


def test_captioner_learns_an_adapter_by_default() -> None:
    assert (
        training_spec(trains="captioner").method,
        training_spec("captioner-paper", trains="captioner").method,
    ) == ("lora", "full")
