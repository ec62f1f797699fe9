"""Serves Auto-UI for
`prill rollout android --policy autoui --model auto-ui --model.base-url http://127.0.0.1:8001/v1`.

    python auto_ui_server.py serve_base.py     # in models/Auto-UI of the authors' repository:
                                               # calls their `generate(text, image)`
    python auto_ui_server.py http://HOST:7860  # their server, started by `python serve_base.py`:
                                               # calls its `/predict`
"""

from __future__ import annotations

import argparse
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

from chat import serve
from PIL import Image


def generator(source: str) -> Any:
    """Returns a function of prompt and image, from the authors' program or their gradio server."""
    if not source.startswith(("http://", "https://")):
        sys.path.insert(0, str(Path(source).absolute().parent))
        return runpy.run_path(source, run_name="auto_ui")["generate"]
    import gradio_client

    # versions before 1.0 accept a path
    client, as_file = gradio_client.Client(source), getattr(gradio_client, "handle_file", str)

    def predict(text: str, image: Image.Image) -> str:
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            image.save(file.name)
            return str(client.predict(text, as_file(file.name), api_name="/predict"))

    return predict


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "source", help="serve_base.py or serve_large.py, or the address of a gradio server"
    )
    parser.add_argument("--port", type=int, default=8001)
    args = parser.parse_args()
    generate = generator(args.source)
    serve(lambda text, image, settings: generate(text, image), args.port)
