"""The servers of `examples/model_servers` as plain processes, asked by prill; only the models' own
libraries are doubles.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.captioner import VLMCaptioner
from prill.captioner.ocr import OCRCaptioner, TextBox
from prill.errors import EndpointError, UnscoredError
from prill.models import OpenAIModel
from prill.policies import AutoUI
from prill.types import Observation, Task
from tests.support.paths import ROOT

Server = Callable[..., AbstractContextManager[str]]
SERVERS = ROOT / "examples/model_servers"
# As models/Auto-UI/serve_base.py of the authors' repository: a function of prompt and picture
# beside a `main` that is not run.
SERVE_BASE = """
from helper import MARK  # a module beside it
def generate(text: str, imgage):
    if "impossible" in text:
        raise RuntimeError("CUDA out of memory")
    return (f"Action Plan: [DUAL_POINT]; {MARK}" + '"action_type": "DUAL_POINT", "touch_point": "[0.7191, 0.4154]", '
            f'"lift_point": "[0.7191, 0.4154]", "typed_text": "{imgage.size} {text}"')
if __name__ == "__main__":
    raise SystemExit("not to be run")
"""  # noqa: E501
# What captioner_server.py takes of gradio_client, transformers and torch.
DOUBLES = {
    "gradio_client.py": """
from pathlib import Path
def handle_file(path):
    return {"path": path}
class Client:
    def __init__(self, url):
        self.url = url
    def predict(self, text, image, api_name):
        assert api_name == "/predict" and Path(image["path"]).stat().st_size
        return f'Action Decision: "action_type": "TYPE", "touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]", ' \\
               f'"typed_text": "{self.url}"'
""",  # noqa: E501
    "torch.py": """
class cuda:
    is_available = staticmethod(lambda: False)
def manual_seed(seed):
    global seeded
    seeded = seed
""",
    "transformers.py": """
import json
from pathlib import Path
import torch
class GenerationConfig:
    from_dict = staticmethod(dict)
class AutoTokenizer:
    @classmethod
    def from_pretrained(cls, name, trust_remote_code):
        return cls()
    def from_list_format(self, parts):
        assert Path(parts[0]["image"]).read_bytes()[:2] == b"\\xff\\xd8"
        return parts[1]["text"]
class AutoModelForCausalLM:
    @classmethod
    def from_pretrained(cls, name, trust_remote_code):
        return cls()
    def eval(self):
        return self
    def chat(self, tokenizer, query, history, generation_config):
        return json.dumps({"query": query, "history": history, "seed": torch.seeded, **generation_config}), []
""",  # noqa: E501
}


@pytest.fixture
def shot(tmp_path: Path) -> Observation:
    Picture.new("RGB", (39, 84), (200, 40, 90)).save(tmp_path / "a.png")
    return Observation(screenshot=str(tmp_path / "a.png"))


@pytest.fixture
def served(tmp_path: Path) -> Server:
    """Runs a server; gives its address."""
    folder = tmp_path / "doubles"
    folder.mkdir()
    for name, text in {
        **DOUBLES,
        "serve_base.py": SERVE_BASE,
        "helper.py": 'MARK = "Action Decision: "',
    }.items():
        (folder / name).write_text(text, encoding="utf-8")

    @contextmanager
    def run(script: str, *words: str) -> Iterator[str]:
        command = [sys.executable, str(SERVERS / script), *words, "--port", "0"]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline().strip()
            finally:
                process.terminate()

    return run


async def test_auto_ui_plays_by_its_own_program(served: Server, shot: Observation) -> None:
    with served("auto_ui_server.py", "serve_base.py") as url:
        policy = AutoUI(OpenAIModel("auto-ui", base_url=url, retries=0))
        policy.reset(Task(goal="Open Settings", platform="android"))
        first = (await policy.act(shot)).action
        assert (first.kind, first.point) == ("click", (0.4154, 0.7191))
        policy.reset(Task(goal="impossible", platform="android"))
        with pytest.raises((EndpointError, UnscoredError), match="out of memory"):
            await policy.act(shot)


async def test_captioner_is_asked_in_its_own_words(
    served: Server, shot: Observation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def boxes(self: OCRCaptioner, path: str) -> Sequence[TextBox]:
        return [TextBox(text, (0.0, 0.0, 1.0, 1.0), 1.0) for text in ("Cart (3)", "Check out")]

    monkeypatch.setattr(OCRCaptioner, "_boxes", boxes)
    monkeypatch.setattr("prill.captioner.ocr.engine_version", lambda engine: "1")
    monkeypatch.setenv("PRILL_CACHE_DIR", str(tmp_path / "cache"))
    with served("captioner_server.py", "DigitalAgent/Captioner") as url:
        model = OpenAIModel("captioner", base_url=url)
        said = json.loads(await VLMCaptioner(model, preset="original", seed=7)(shot))
    assert said == {
        "query": (
            "Please describe the screenshot above in details.\nOCR Result:\nCart (3)\nCheck out"
        ),
        "history": [],
        "seed": 7,
        "chat_format": "chatml",
        "do_sample": True,
        "eos_token_id": 151643,
        "pad_token_id": 151643,
        "max_new_tokens": 2048,
        "max_window_size": 6144,
        "repetition_penalty": 1.2,
        "top_k": 0,
        "top_p": 0.3,
        "temperature": 1.0,
    }
