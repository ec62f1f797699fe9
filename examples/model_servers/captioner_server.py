"""Serves the captioner that arXiv 2404.06474 released, for `--judge.captioner vlm` with
`preset = "original"`.

    pip install 'transformers==4.32.0' torch pillow tiktoken einops transformers_stream_generator \\
        accelerate
    python captioner_server.py DigitalAgent/Captioner  # a name on the Hugging Face hub, or a folder

It runs the model's own code. The prompt, including the text that EasyOCR read, and the sampling
parameters come from prill. Omitted parameters have the defaults of the authors' server: top_p 0.3,
top_k 0, a repetition penalty of 1.2, at most 2,048 new tokens, a context window of 6,144.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from chat import serve
from PIL import Image

END = 151643  # <|endoftext|> of Qwen's tokenizer
DEFAULTS = {
    "top_p": 0.3,
    "top_k": 0,
    "repetition_penalty": 1.2,
    "max_tokens": 2048,
    "temperature": 1.0,
}


class Captioner:
    """Qwen-VL-Chat through its own `chat` method."""

    def __init__(self, name: str) -> None:
        import torch
        import transformers

        self.torch, self.transformers = torch, transformers
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True)
        self.model = (model.to("cuda").half() if torch.cuda.is_available() else model).eval()

    def __call__(self, text: str, image: Image.Image, request: dict[str, Any]) -> str:
        wanted = {name: request.get(name, value) for name, value in DEFAULTS.items()}
        drawn = wanted["temperature"] > 0
        config = self.transformers.GenerationConfig.from_dict(
            {
                "chat_format": "chatml",
                "do_sample": drawn,
                "eos_token_id": END,
                "pad_token_id": END,
                "max_new_tokens": wanted["max_tokens"],
                "max_window_size": 6144,
                "repetition_penalty": wanted["repetition_penalty"],
                **(
                    {name: wanted[name] for name in ("top_k", "top_p", "temperature")}
                    if drawn
                    else {}
                ),
            }
        )
        if "seed" in request:
            self.torch.manual_seed(request["seed"])
        with tempfile.NamedTemporaryFile(suffix=".jpg") as file:  # the model opens a path
            image.save(file.name)
            query = self.tokenizer.from_list_format([{"image": file.name}, {"text": text}])
            said, _ = self.model.chat(
                self.tokenizer, query=query, history=[], generation_config=config
            )
        return str(said)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="DigitalAgent/Captioner, or a folder")
    parser.add_argument("--port", type=int, default=8002)
    args = parser.parse_args()
    serve(Captioner(args.model), args.port)
