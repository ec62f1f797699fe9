"""TRL's SFTTrainer with completion-only loss, atomic checkpoints and clean stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from math import ceil
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from prill.evaluators.readers import OUTCOMES
from prill.io.images import open_checked
from prill.refine.training.checkpoints import (
    CHECKPOINTS,
    keep_newest,
    saving_checkpoint,
)
from prill.refine.training.preflight import Preflight, TrainingPlan
from prill.refine.training.samples import Sample, encode, ended, first_difference, turns
from prill.refine.training.spec import TrainSpec
from prill.refine.training.weights import adapter_config, keeps_logits, load_model

_IGNORED = -100  # the label that the loss ignores, in torch and TRL
_SOFT = "soft_label"
SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a training: finished and total steps, and the last logged loss."""

    step: int
    steps: int
    loss: float | None

    @property
    def state(self) -> tuple[Any, ...]:
        """Returns what a progress bar shows: the phase, the count, the total, and a note."""
        loss = "" if self.loss is None else f"loss {self.loss:.4f}"
        return "steps", self.step, self.steps, loss


@dataclass
class TrainingWatch:
    """The callbacks of a training at each step. When `stop` is set, the training saves a checkpoint
    after the step and ends.
    """

    progress: Callable[[Progress], object] = lambda progress: None
    stop: threading.Event = field(default_factory=threading.Event)


def make_trainer(
    spec: TrainSpec, plan: TrainingPlan, output: Path, watch: TrainingWatch, *, on_gpu: bool
) -> Any:
    """Makes an SFTTrainer for the plan's rows, with the model loaded and the labels of
    `samples.ended`.
    """
    trl, transformers = import_module("trl"), import_module("transformers")
    transformers.set_seed(spec.seed)  # the seed of the adapter's initial weights
    settings = training_arguments(
        spec, plan.facts, output, evaluates=bool(plan.held_out), on_gpu=on_gpu
    )
    model = load_model(plan.base, spec, on_gpu=on_gpu)
    soft = any(sample.probability is not None for sample in plan.learnt)
    trainer = saving_whole(
        _scoring_answers(trl.SFTTrainer) if soft or not on_gpu else trl.SFTTrainer,
        spec.keep_checkpoints,
    )(
        model=model,
        args=trl.SFTConfig(
            **{**settings, **spec.options},
            # too long rows are dropped already; TRL's default of 1,024 would cut image tokens
            max_length=None,
            dataloader_num_workers=spec.workers if plan.has_pictures else 0,
        ),
        data_collator=_collator(plan) if plan.has_pictures else None,
        train_dataset=_dataset(plan, plan.learnt),
        eval_dataset=_dataset(plan, plan.held_out) if plan.held_out else None,
        processing_class=plan.base.reader,
        peft_config=adapter_config(model, spec),
    )
    if soft:
        _soften(trainer, plan)
    watched(trainer, watch)
    return trainer


def saving_whole(trainer: Any, keep: int) -> Any:
    """Makes a trainer class with atomic checkpoints, of which it keeps the newest `keep`. It writes
    no model card and uses one GPU per process.
    """

    class Trainer(trainer):  # type: ignore[misc]
        def __init__(self, *, args: Any, **rest: Any) -> None:
            # Without a launcher, transformers gives each visible GPU a batch of this size, which
            # would change the training.
            args._n_gpu = min(args.n_gpu, 1)
            super().__init__(args=args, **rest)

        def create_model_card(self, *args: Any, **kwargs: Any) -> None:
            """Does nothing: prill writes its own card at the end."""

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            folder = Path(self.args.output_dir, f"checkpoint-{self.state.global_step}")
            with saving_checkpoint(folder, first=self.is_world_process_zero()):
                super()._save_checkpoint(model, trial)
                self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                keep_newest(folder.parents[1], keep)

    return Trainer


def _scoring_answers(trainer: Any) -> Any:
    """Makes a subclass of TRL's trainer that computes logits only at positions where some row has
    an answer token. The loss is unchanged, but for rows with a soft label (`_soften`).

    On a CPU, TRL computes the logits of every token. For a small model with short answers this is a
    third of the work.
    """
    cross_entropy = import_module("torch.nn.functional").cross_entropy

    class Trainer(trainer):  # type: ignore[misc]
        def compute_loss(
            self,
            model: Any,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            keeps = keeps_logits(self.model)
            asked = dict(inputs)
            soft = asked.pop(_SOFT, None)
            if soft is None and (return_outputs or self.aux_loss_enabled or not keeps):
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
            wanted = asked.pop("labels")[:, 1:]  # labels of the next token
            learnt = wanted != _IGNORED
            places = learnt.any(dim=0).nonzero().flatten()  # where any row has an answer
            kept = {"logits_to_keep": places} if keeps else {}
            logits = model(**asked, use_cache=False, **kept).logits.float()
            logits, wanted = logits if keeps else logits[:, places], wanted[:, places]
            losses = cross_entropy(
                logits.flatten(0, 1), wanted.flatten(), ignore_index=_IGNORED, reduction="none"
            )
            if soft is not None:
                losses = _with_soft_labels(losses.view_as(wanted), logits, wanted, soft)
            loss = losses.sum()
            if num_items_in_batch is None:
                return loss / learnt.sum()
            # The count may include all processes, whose gradients are averaged.
            share = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
            return loss * share / num_items_in_batch

    return Trainer


def _soften(trainer: Any, plan: TrainingPlan) -> None:
    """Gives the rows of a trainer their soft labels: the place of the verdict's token in the
    answer, the tokens of success and failure, and the probability of success.
    """
    torch, soft = import_module("torch"), []
    for sample in plan.learnt:
        chance = float(sample.verdict == OUTCOMES[0])
        place, tokens = first_difference(
            sample, OUTCOMES[:2], plan.base.reader, sees=plan.base.sees
        )
        soft.append([place, *tokens, chance if sample.probability is None else sample.probability])
    trainer.train_dataset = trainer.train_dataset.add_column(_SOFT, soft)
    collate = trainer.data_collator

    def with_soft_labels(rows: list[dict[str, Any]]) -> dict[str, Any]:
        labels = [row[_SOFT] for row in rows if _SOFT in row]  # held-out rows have none
        batch = collate([{k: v for k, v in row.items() if k != _SOFT} for row in rows])
        return {**batch, **({_SOFT: torch.tensor(labels)} if labels else {})}

    trainer.data_collator = with_soft_labels


def _with_soft_labels(losses: Any, logits: Any, wanted: Any, soft: Any) -> Any:
    """Replaces the loss of each row's verdict token by the cross-entropy with its soft label.

    `losses` and `wanted` are rows x places, `logits` rows x places x tokens, `soft` rows x 4
    (`_soften`).
    """
    torch = import_module("torch")
    row = torch.arange(len(wanted), device=wanted.device)
    place = (wanted != _IGNORED).int().argmax(dim=1) + soft[:, 0].long()
    log = logits[row, place].log_softmax(-1)
    success, failure = (log[row, soft[:, i].long()] for i in (1, 2))
    changed = losses.clone()
    changed[row, place] = -(soft[:, 3] * success + (1 - soft[:, 3]) * failure)
    return changed


@contextmanager
def stop_on_ctrl_c(stop: threading.Event) -> Iterator[None]:
    """Handles Ctrl-C and TERM: the first ends the training after this step with a checkpoint, the
    second at once. It works in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def interrupt(number: int, frame: FrameType | None) -> None:
        stop.set()
        for one in numbers:
            signal.signal(one, before[one])

    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])


class _Sizes(Protocol):
    """The sizes of a training: its steps, and how each step's rows are divided."""

    @property
    def steps(self) -> int: ...
    @property
    def micro_batch(self) -> int: ...
    @property
    def accumulation(self) -> int: ...


def common_arguments(spec: TrainSpec, sizes: _Sizes, *, evaluates: bool) -> dict[str, Any]:
    """Converts the settings to the arguments that transformers and ms-swift share."""
    every = spec.checkpoint_every or max(1, min(500, ceil(sizes.steps / 10)))
    return dict(
        max_steps=sizes.steps,
        per_device_train_batch_size=sizes.micro_batch,
        per_device_eval_batch_size=sizes.micro_batch,
        gradient_accumulation_steps=sizes.accumulation,
        learning_rate=spec.learning_rate,
        lr_scheduler_type=SCHEDULES[spec.schedule],
        warmup_steps=ceil(spec.warmup * sizes.steps),
        weight_decay=spec.weight_decay,
        adam_beta1=spec.beta1,
        adam_beta2=spec.beta2,
        max_grad_norm=spec.max_grad_norm,
        seed=spec.seed,
        logging_steps=spec.log_every,
        save_steps=every,
        eval_strategy="steps" if evaluates else "no",
        eval_steps=every if evaluates else None,
        report_to=spec.report_to,
    )


def training_arguments(
    spec: TrainSpec, facts: Preflight, output: Path, *, evaluates: bool, on_gpu: bool
) -> dict[str, Any]:
    """Converts the settings to transformers' arguments. `evaluates`: there are held-out rows."""
    torch = import_module("torch")
    again = on_gpu if spec.gradient_checkpointing is None else spec.gradient_checkpointing
    return dict(
        **common_arguments(spec, facts, evaluates=evaluates),
        output_dir=str(output / CHECKPOINTS),
        gradient_checkpointing=again,
        optim="adamw_torch_fused" if on_gpu else "adamw_torch",
        bf16=on_gpu and torch.cuda.is_bf16_supported(),
        use_cpu=not on_gpu,
        logging_first_step=True,
        save_strategy="steps",
        prediction_loss_only=True,
        disable_tqdm=True,
        dataloader_pin_memory=on_gpu,
        remove_unused_columns=False,
    )


def _dataset(plan: TrainingPlan, samples: Sequence[Sample]) -> Any:
    """Returns tokens and labels for text rows; for rows with images, their indices, which the
    collator resolves on demand.
    """
    make = import_module("datasets").Dataset.from_dict
    if plan.has_pictures:
        # TRL recognises rows with images by this column.
        place = {sample.line: index for index, sample in enumerate(plan.rows.samples)}
        return make(
            {"images": [list(s.images) for s in samples], "row": [place[s.line] for s in samples]}
        )
    encoded = [encode(sample, plan.base.reader, sees=plan.base.sees) for sample in samples]
    return make(
        {"input_ids": [row.input_ids for row in encoded], "labels": [row.labels for row in encoded]}
    )


def _collator(plan: TrainingPlan) -> Any:
    """Makes TRL's collator for rows with images, with labels that end with the answer."""
    torch, trl = import_module("torch"), import_module("trl.trainer.sft_trainer")
    samples, reader = plan.rows.samples, plan.base.reader

    vision: Any = trl.DataCollatorForVisionLanguageModeling

    class Collator(vision):  # type: ignore[misc]
        def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
            rows = [samples[example["row"]] for example in examples]
            batch: dict[str, Any] = super().torch_call([_pictured(row) for row in rows])
            batch["labels"] = torch.tensor(
                [ended(labels, reader.tokenizer) for labels in batch["labels"].tolist()]
            )
            return batch

    return Collator(processor=reader, max_length=None, completion_only_loss=True)


def _pictured(sample: Sample) -> dict[str, Any]:
    prompt, completion = turns(sample, sees=True)
    return {
        "images": [open_checked(image) for image in sample.images],
        "prompt": prompt,
        "completion": completion,
    }


def watched(trainer: Any, watch: TrainingWatch) -> None:
    """Adds callbacks to a trainer: it reports its steps and ends on `stop`."""
    torch, transformers = import_module("torch"), import_module("transformers")
    trainer.remove_callback(transformers.PrinterCallback)  # it prints to standard output
    callback: Any = transformers.TrainerCallback

    class Callback(callback):  # type: ignore[misc]
        loss: float | None = None

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any
        ) -> None:
            self.loss = (logs or {}).get("loss", self.loss)

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if state.is_world_process_zero:
                watch.progress(Progress(state.global_step, state.max_steps, self.loss))
            if self._should_stop() and state.global_step < state.max_steps:
                control.should_save = control.should_training_stop = True

        def _should_stop(self) -> bool:
            """Whether any process is to stop, so that all end after the same step."""
            if trainer.args.world_size == 1:
                return watch.stop.is_set()
            flag = torch.tensor(float(watch.stop.is_set()), device=trainer.args.device)
            return bool(trainer.accelerator.reduce(flag, "sum").item())

    trainer.add_callback(Callback())
