"""Options that every kind of model has: how pictures are sent, and how replies are drawn."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

from prill.models.local.model import LocalModel
from prill.models.registry import make_model
from prill.protocols import Image, Message
from tests.support.models.scripted_endpoint import ScriptedEndpoint, model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What has the look of a model: nothing is loaded."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/config.json").write_text(json.dumps({"model_type": "qwen2"}))
    return tmp_path / "weights"


@pytest.fixture
def ask(tmp_path: Path) -> tuple[Message, ...]:
    path = tmp_path / "screen.png"
    Picture.effect_noise((60, 40), 50).convert("RGB").save(path)
    return (Message("user", (Image(str(path)), "What is it?")),)


@pytest.mark.parametrize("kind", ["local:{}", "vllm:{}"])
def test_models_here_tell_how_they_are_asked(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prill.models.vllm.shutil.which", lambda name, **_: f"/bin/{name}")
    made: Any = make_model(kind.format(folder), image_format="jpeg", temperature=0.5, top_k=9)
    assert made.name.endswith("weights (temperature 0.5, top_k 9) (image format jpeg)")
    assert made.sampled(1.0, 3).name.endswith(
        "weights (temperature 1, seed 3, top_k 9) (image format jpeg)"
    )
    plain = make_model(kind.format(folder))
    assert plain.name.endswith("weights")


def test_local_model_sees_what_would_be_sent(folder: Path, ask: tuple[Message, ...]) -> None:
    (image, _) = ask[0].parts
    assert isinstance(image, Image)
    plain, jpeg = (
        LocalModel(folder, image_format=given)._picture(image.path) for given in (None, "jpeg")
    )
    assert plain.tobytes() == Picture.open(image.path).tobytes() != jpeg.tobytes()


async def test_endpoint_is_sent_jpeg(endpoint: ScriptedEndpoint, ask: tuple[Message, ...]) -> None:
    for asked in (model(endpoint, image_format="jpeg"), model(endpoint)):
        await asked.complete(ask)
    urls = [body["messages"][0]["content"][0]["image_url"]["url"] for body in endpoint.bodies]
    assert [url.partition(";")[0] for url in urls] == ["data:image/jpeg", "data:image/png"]
    assert Picture.open(BytesIO(base64.b64decode(urls[0].partition(",")[2]))).format == "JPEG"
