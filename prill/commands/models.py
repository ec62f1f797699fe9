"""From command-line words to language models and captioners."""

from __future__ import annotations

import argparse
from pathlib import Path

from prill.errors import UsageError
from prill.protocols import Captioner, LanguageModel
from prill.store import BadLine, read_trajectories

CAPTIONERS = ("given", "text", "ocr", "easyocr")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which model answers, and where."""
    endpoint = parser.add_argument_group("model")
    endpoint.add_argument(
        "--model",
        metavar="M",
        help="model at the endpoint; `embedded`: a small one in this process; `local:DIR`: a folder for transformers",
    )
    endpoint.add_argument(
        "--base-url", metavar="URL", help="OpenAI-compatible endpoint (default $OPENAI_BASE_URL, else OpenAI)"
    )
    endpoint.add_argument(
        "--api-key-env", default="OPENAI_API_KEY", metavar="VAR", help="variable with the key (default OPENAI_API_KEY)"
    )
    endpoint.add_argument("--gguf", metavar="FILE", help="with --model embedded: another GGUF file than the bundled one")
    endpoint.add_argument("--timeout", type=float, default=120.0, metavar="S", help="seconds for one attempt (default 120)")
    endpoint.add_argument("--retries", type=int, default=5, metavar="N", help="attempts after the first (default 5)")
    endpoint.add_argument("--prices", metavar="FILE", help="price table (TOML) that goes before the built-in one")
    endpoint.add_argument("--budget-usd", type=float, metavar="X", help="start no call beyond this cost")
    endpoint.add_argument("--cache", metavar="DIR", help="keep model replies there and reuse them")


def make_model(args: argparse.Namespace) -> LanguageModel:
    """The model of `--model`. Raises UsageError."""
    from prill.cache import DiskCache

    if args.model and args.model.startswith("local:"):
        from prill.models.local import LocalModel

        return LocalModel(args.model.removeprefix("local:"), timeout=args.timeout)
    if not args.model:
        raise UsageError("--model is missing: name a model at the endpoint, or `embedded`")
    cache = DiskCache(Path(args.cache) / "replies.sqlite") if args.cache else None
    if args.model == "embedded":
        from prill.models.embedded import EmbeddedModel

        return EmbeddedModel(args.gguf, cache=cache)
    from prill.models.client import OpenAIModel

    return OpenAIModel(
        args.model,
        base_url=args.base_url,
        api_key_env=args.api_key_env,
        concurrency=args.concurrency,
        timeout=args.timeout,
        total_timeout=max(600.0, 3 * args.timeout),
        retries=args.retries,
        prices=args.prices,
        budget_usd=args.budget_usd,
        cache=cache,
    )


def make_captioner(name: str) -> Captioner:
    """The captioner of that name; those that look at images keep their captions on disk. Raises UsageError."""
    if name == "given":
        from prill.captioner.recorded import GivenCaption

        return GivenCaption()
    if name == "text":
        from prill.captioner.recorded import TextState

        return TextState()
    if name in ("ocr", "easyocr"):
        from prill.captioner.cache import CachedCaptioner
        from prill.captioner.ocr import OCRCaptioner

        return CachedCaptioner(OCRCaptioner("rapidocr" if name == "ocr" else "easyocr"))
    raise UsageError(f"unknown captioner {name!r}; there are: {', '.join(CAPTIONERS)}")


def choose_captioner(paths: list[str]) -> str:
    """What the last state of the first trajectory offers: its caption, else its text, else its screenshot."""
    for path in paths:
        for item in read_trajectories(path):
            if isinstance(item, BadLine) or not item.observations:
                continue
            last = item.observations[-1]
            return "given" if last.caption else "text" if last.text else "ocr"
    return "given"


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError("give a whole number of at least 1")
    return number
