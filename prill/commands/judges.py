"""From command-line words to evaluators, captioners and models: the one place that knows the concrete classes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from prill.errors import UsageError
from prill.protocols import Captioner, Evaluator, LanguageModel
from prill.store import BadLine, read_trajectories

EVALUATORS = {
    "vlm": "a vision-language model sees the last screenshots",
    "modular": "a captioner, then a language model that reads the caption",
}
CAPTIONERS = ("given", "text", "ocr", "easyocr")


def add_judge_options(parser: argparse.ArgumentParser) -> None:
    """The options that say who judges."""
    judge = parser.add_argument_group("judge")
    names = "; ".join(f"{name}: {what}" for name, what in EVALUATORS.items())
    judge.add_argument("--evaluator", required=True, metavar="NAME", help=names)
    judge.add_argument(
        "--captioner", metavar="NAME", help="for modular: given (captions of the file), text (page text), ocr, easyocr"
    )
    judge.add_argument("--frames", type=positive, default=1, metavar="N", help="last states shown to the judge (default 1)")
    judge.add_argument("--no-answer", action="store_true", help="do not show the agent's answer to the judge")
    judge.add_argument("--max-tokens", type=positive, metavar="N", help="token limit of a reply (default 1024)")
    endpoint = parser.add_argument_group("model")
    endpoint.add_argument("--model", metavar="M", help="model at the endpoint, or `embedded`: a small one in this process")
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

    if not args.model:
        raise UsageError("--model is missing: name a model at the endpoint, or `embedded`")
    cache = DiskCache(Path(args.cache) / "replies.sqlite") if args.cache else None
    if args.model == "embedded":
        from prill.models.embedded import EmbeddedModel

        if args.evaluator == "vlm":
            raise UsageError("the embedded model takes no images; use --evaluator modular, or a model with vision")
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
        from prill.captioner.given import GivenCaption

        return GivenCaption()
    if name == "text":
        from prill.captioner.text_state import TextState

        return TextState()
    if name in ("ocr", "easyocr"):
        from prill.captioner.cache import CachedCaptioner
        from prill.captioner.ocr import OCRCaptioner

        return CachedCaptioner(OCRCaptioner("rapidocr" if name == "ocr" else "easyocr"))
    raise UsageError(f"unknown captioner {name!r}; there are: {', '.join(CAPTIONERS)}")


def make_evaluator(args: argparse.Namespace) -> Evaluator:
    """The evaluator of `--evaluator`. Raises UsageError."""
    if args.evaluator not in EVALUATORS:
        raise UsageError(f"unknown evaluator {args.evaluator!r}; there are: {', '.join(EVALUATORS)}")
    from prill.evaluators.outcome import MAX_TOKENS

    max_tokens = args.max_tokens or MAX_TOKENS
    if args.evaluator == "vlm":
        if args.captioner:
            raise UsageError("--captioner goes with --evaluator modular")
        from prill.evaluators.vlm import VLMJudge

        return VLMJudge(make_model(args), frames=args.frames, include_answer=not args.no_answer, max_tokens=max_tokens)
    from prill.evaluators.modular import CaptionJudge

    chosen = args.captioner or choose_captioner(args.trajectories)
    if not args.captioner:
        print(f"captioner: {chosen}, by what the first trajectory has", file=sys.stderr)
    captioner = make_captioner(chosen)
    return CaptionJudge(
        make_model(args), captioner, frames=args.frames, include_answer=not args.no_answer, max_tokens=max_tokens
    )


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
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give a number of at least 1")
    return number
