"""From command-line words, or a judge file, to an evaluator: the one place that knows the concrete classes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from prill.commands.fitted import students
from prill.commands.models import add_model_options, choose_captioner, make_captioner, make_model, positive
from prill.errors import UsageError
from prill.protocols import Captioner, Evaluator, LanguageModel, SampledModel

Model = Callable[[], LanguageModel]
_COMBINED = ("vote", "cascade", "ensemble")


def add_judge_options(parser: argparse.ArgumentParser) -> None:
    """The options that say who judges."""
    judge = parser.add_argument_group("judge")
    names = "; ".join(f"{name}: {kind.what}" for name, kind in EVALUATORS.items())
    judge.add_argument("--evaluator", required=True, metavar="NAME|FILE.toml", help=f"a judge file, or {names}")
    judge.add_argument(
        "--preset",
        choices=("prill", "paper"),
        default="prill",
        help="for vlm, modular, steps: the protocol of arXiv 2404.06474, or prill's own (default)",
    )
    judge.add_argument(
        "--captioner", metavar="NAME", help="what reads states: given (captions of the file), text (page text), ocr, easyocr"
    )
    judge.add_argument("--frames", type=positive, default=1, metavar="N", help="last states shown to the judge (default 1)")
    judge.add_argument("--no-answer", action="store_true", help="do not show the agent's answer to the judge")
    judge.add_argument("--thoughts", action="store_true", help="show the agent's thoughts to the judge, as claims")
    judge.add_argument(
        "--evidence-only", action="store_true", help="hide thoughts, answer and messages of the agent from every judge"
    )
    judge.add_argument(
        "--read-points", choices=("tree", "ocr"), help="name what the agent tapped, by the UI tree or by OCR of the screenshot"
    )
    judge.add_argument("--mark-points", action="store_true", help="draw what the agent touched on the screenshots shown")
    judge.add_argument("--calibration", metavar="FILE", help="scores and threshold by a file of prill calibrate")
    judge.add_argument(
        "--max-tokens", type=positive, metavar="N", help="token limit of a reply (default 1024; steps 512, rubric 2048)"
    )
    more = parser.add_argument_group("judges of judges, and what single judges need")
    more.add_argument("--of", metavar="NAME", help="vote: the judge that is sampled; cascade: the second judge")
    more.add_argument("--samples", type=positive, default=3, metavar="N", help="vote: samples; the first at temperature 0")
    more.add_argument("--temperature", type=float, default=1.0, metavar="T", help="vote: of the further samples (default 1)")
    more.add_argument("--rule", choices=("majority", "unanimous", "any"), default="majority", help="vote: what makes a success")
    more.add_argument("--first", metavar="FILE", help="cascade: the fitted judge that is asked first")
    more.add_argument(
        "--band",
        nargs=2,
        type=float,
        default=(0.1, 0.9),
        metavar=("LOW", "HIGH"),
        help="cascade: scores of the first judge that go to the second (default 0.1 0.9)",
    )
    more.add_argument("--threshold", type=float, default=0.5, metavar="X", help="ensemble: least score of a success")
    more.add_argument("--top-k", type=positive, metavar="K", help="webjudge, rubric: frames kept besides the last")
    more.add_argument("--rubrics", metavar="FILE", help="rubric: criteria of your own, by task or goal")
    more.add_argument("--towards", type=float, default=0.5, metavar="P", help="steps: reward of progress (default 0.5)")
    more.add_argument("--away", type=float, default=-0.5, metavar="D", help="steps: reward without progress (default -0.5)")
    more.add_argument("--oracle-labels", metavar="FILE", help="oracle: the labels that are given as verdicts")
    more.add_argument("--oracle-source", metavar="S", help="oracle: labels to use where there are several sources")
    add_model_options(parser)


def make_evaluator(args: argparse.Namespace) -> Evaluator:
    """The evaluator of `--evaluator`, with what was asked for around it. Raises UsageError."""
    if args.evaluator.endswith(".toml"):
        from prill.commands.judge_files import read_judge_file

        args = read_judge_file(args.evaluator, args)
    if args.evaluator not in EVALUATORS:
        raise UsageError(f"unknown evaluator {args.evaluator!r}; there are: {', '.join(EVALUATORS)}, or a file ending in .toml")
    return _wrapped(EVALUATORS[args.evaluator].make(args, lambda: make_model(args)), args)


def _wrapped(judge: Evaluator, args: argparse.Namespace) -> Evaluator:
    if args.mark_points:
        from prill.evaluators.wrappers.marking import Marked

        judge = Marked(judge)
    if args.read_points:
        from prill.evaluators.wrappers.pointing import Pointing, read_screenshot

        judge = Pointing(judge, read_screenshot() if args.read_points == "ocr" else None)
    if args.evidence_only:
        from prill.evaluators.wrappers.rewritten import EvidenceOnly

        if any(not student.model.evidence_only for student in students(judge)):
            raise UsageError(
                "--evidence-only hides what the fitted judge was fitted to look at, so it would misjudge; "
                "fit one with `prill fit --evidence-only`"
            )
        judge = EvidenceOnly(judge)
    if args.calibration:
        from prill.evaluators.fitted.calibration import Calibrated, read_calibration

        judge = Calibrated(judge, read_calibration(args.calibration))
    return judge


def _tokens(args: argparse.Namespace, default: int) -> int:
    return int(args.max_tokens or default)


def _captioner(args: argparse.Namespace) -> Captioner:
    if not args.captioner:
        args.captioner = choose_captioner(args.trajectories)
        print(f"captioner: {args.captioner}, by what the first trajectory has", file=sys.stderr)
    return make_captioner(args.captioner)


def _shown(args: argparse.Namespace) -> dict[str, Any]:
    """What judges of one call show of a trajectory, and how much they may say."""
    from prill.evaluators.outcome import MAX_TOKENS

    return {
        "preset": args.preset,
        "frames": args.frames,
        "include_answer": False if args.no_answer else None,
        "include_thoughts": args.thoughts,
        "max_tokens": _tokens(args, MAX_TOKENS),
    }


def _vlm(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.outcome import VLMJudge

    if args.captioner:
        raise UsageError("--captioner does not go with --evaluator vlm, which looks at screenshots; use modular")
    if args.model == "embedded":
        raise UsageError("the embedded model takes no images; use --evaluator modular, or a model with vision")
    return VLMJudge(model(), **_shown(args))


def _modular(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.outcome import CaptionJudge

    return CaptionJudge(model(), _captioner(args), **_shown(args))


def _steps(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.steps import MAX_TOKENS, StepJudge

    return StepJudge(
        model(), _captioner(args), preset=args.preset, p=args.towards, d=args.away, max_tokens=_tokens(args, MAX_TOKENS)
    )


def _webjudge(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.outcome import MAX_TOKENS
    from prill.evaluators.webjudge import TOP_K, WebJudge

    return WebJudge(model(), _reader(args), top_k=args.top_k or TOP_K, max_tokens=_tokens(args, MAX_TOKENS))


def _rubric(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.rubric import MAX_TOKENS, TOP_K, RubricJudge, read_rubrics

    return RubricJudge(
        model(),
        _reader(args),
        rubrics=read_rubrics(args.rubrics) if args.rubrics else None,
        include_answer=not args.no_answer,
        top_k=args.top_k or TOP_K,
        max_tokens=_tokens(args, MAX_TOKENS),
    )


def _reader(args: argparse.Namespace) -> Captioner | None:
    """What turns states into text; None: the model looks at screenshots, unless it cannot."""
    if args.captioner or args.model == "embedded":
        return _captioner(args)
    return None


def _student(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.fitted.student import Student

    if not args.model:
        raise UsageError(f"--model is missing: for {args.evaluator} it is the file that prill fit wrote")
    student = Student.load(args.model)
    if args.evaluator != student.info.name:
        raise UsageError(f"{args.model} holds a {student.info.name}; use --evaluator {student.info.name}")
    return student


def _oracle(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.baselines import oracle
    from prill.store import read_labels

    if not args.oracle_labels:
        raise UsageError("--oracle-labels is missing: the labels that the oracle gives as verdicts")
    try:
        return oracle(list(read_labels(args.oracle_labels)), args.oracle_source)
    except UsageError as error:
        raise UsageError(
            f"{args.oracle_labels}: {error}".replace("choose one source", "choose one with --oracle-source")
        ) from None


def _constant(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.baselines import Constant

    return Constant(args.evaluator == "always-success")


def _self_report(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.baselines import SelfReport

    return SelfReport()


def _vote(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.combine import Vote

    if judges := _listed(args):
        return Vote(judges, args.rule)
    kind = _single(args)
    first = model()
    if not isinstance(first, SampledModel):
        raise UsageError(f"model {first.name} cannot be sampled; give several judges in a judge file instead")
    drawn = [first, *(first.sampled(args.temperature, seed) for seed in range(1, args.samples))]
    return Vote([kind.make(args, lambda one=one: one) for one in drawn], args.rule)  # type: ignore[misc]


def _cascade(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.combine import Cascade
    from prill.evaluators.fitted.student import Student

    low, high = args.band
    if judges := _listed(args):
        if len(judges) != 2:
            raise UsageError(f"a cascade has two judges, and {len(judges)} are given")
        return Cascade(judges[0], judges[1], low=low, high=high)
    if not args.first:
        raise UsageError("--first is missing: the file of the fitted judge that is asked first (or use a judge file)")
    return Cascade(Student.load(args.first), _single(args).make(args, model), low=low, high=high)


def _ensemble(args: argparse.Namespace, model: Model) -> Evaluator:
    from prill.evaluators.combine import Ensemble

    judges = _listed(args)
    if not judges:
        raise UsageError("an ensemble is described in a judge file, with its judges and their weights")
    return Ensemble(judges, args.weights, threshold=args.threshold)


def _listed(args: argparse.Namespace) -> list[Evaluator]:
    """The judges of a judge file."""
    return [make_evaluator(one) for one in getattr(args, "judges", ())]


def _single(args: argparse.Namespace) -> Kind:
    """The judge of `--of`."""
    name = args.of or "modular"
    if name not in EVALUATORS or name in _COMBINED:
        raise UsageError(f"--of {name}: choose one of {', '.join(n for n in EVALUATORS if n not in _COMBINED)}")
    return EVALUATORS[name]


class Kind(NamedTuple):
    """A kind of evaluator: what it does in a phrase, and how it is made."""

    what: str
    make: Callable[[argparse.Namespace, Model], Evaluator]


EVALUATORS = {
    "vlm": Kind("a vision-language model sees the last screenshots", _vlm),
    "modular": Kind("a captioner, then a language model that reads the caption", _modular),
    "steps": Kind("a label and a reward for every action", _steps),
    "webjudge": Kind("key points, a grade for every frame, then the verdict", _webjudge),
    "rubric": Kind("criteria of the goal, each with the step that shows it", _rubric),
    "vote": Kind("samples of one judge, or several judges", _vote),
    "cascade": Kind("a fitted judge, and another where it is unsure", _cascade),
    "ensemble": Kind("the weighted mean of several judges", _ensemble),
    "student": Kind("a judge fitted to labels by prill fit", _student),
    "prior": Kind("the same, from telemetry alone", _student),
    "oracle": Kind("the labels themselves", _oracle),
    "self-report": Kind("success when the agent says so", _self_report),
    "always-fail": Kind("failure, always", _constant),
    "always-success": Kind("success, always", _constant),
}
