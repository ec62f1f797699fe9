"""Runs two steps of TRL's GRPO with a judge as the reward. An untrained model of 50,000 parameters
trains on a CPU, without downloads.

Run: OPENAI_BASE_URL=http://127.0.0.1:8000/v1 .venv/bin/python examples/grpo_with_judge.py MODEL
(`python -m prill.testing.endpoint.server --port 8000` starts a mock endpoint.) Replace tiny_model()
and TASKS with your own model and tasks. It needs pip install '.[train]'.
"""

import sys
import tempfile
from typing import Any

import prill
from prill.models import mend_torchvision
from prill.refine.rewards import TRLReward

TASKS = ["Which button buys the tea?", "Which link leads to the cart?"]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if "
    "add_generation_prompt %}assistant: {% endif %}"
)


def tiny_model() -> tuple[Any, Any]:
    """Returns an untrained language model and its byte tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    letters = ["<end>", "<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bare = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bare, eos_token="<end>", pad_token="<pad>", chat_template=TEMPLATE
    )
    config = Qwen2Config(
        vocab_size=len(letters),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=1,
    )
    return Qwen2ForCausalLM(config), tokenizer


def main(judge_model: str) -> None:
    """Trains the model and prints the rewards."""
    # TRL imports torchvision if it is installed. The default wheel, built for CUDA, fails to import
    # next to a CPU build of torch without this patch.
    mend_torchvision()
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportPrivateImportUsage]

    reward = prill.reward(
        "modular", captioner="text", model=judge_model, kind="success", on_unscored="abstain"
    )
    # judges the completion only; for episodes, see docs/how-to/rewards.md
    judges: list[Any] = [TRLReward(reward, column=None)]
    model, tokenizer = tiny_model()
    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=16,
            max_steps=2,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
        )
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=judges,
            train_dataset=Dataset.from_list(
                [{"prompt": [{"role": "user", "content": task}]} for task in TASKS]
            ),
            args=settings,
        )
        trainer.train()
    for row in trainer.state.log_history:
        if "rewards/judge/mean" in row:
            print(
                f"step {row['step']}: reward {row['rewards/judge/mean']:.2f}, unscored "
                f"{row['judge/unscored']:.2f}"
            )


if __name__ == "__main__":
    main(sys.argv[1])
