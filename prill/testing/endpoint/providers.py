"""Provider profiles: how OpenAI-compatible servers differ.

Each entry imitates what its provider documents, or its observed behaviour, as far as prill's client
is concerned: which request fields it rejects with which message, and the form of its responses.
Models, speed and prices are not imitated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from prill.testing.endpoint.faults import Faults

_REASONING = Faults(no_max_tokens=True, no_temperature=True, no_logprobs=True, hidden_thought=2_000)

PROVIDERS: Mapping[str, Faults] = MappingProxyType(
    {
        "openai gpt-4o": Faults(),
        "openai o4-mini": replace(_REASONING, logprobs_status=403),
        "openai gpt-5": _REASONING,
        "azure": Faults(api_key_header=True),
        "anthropic": Faults(ignore_format=True, logprobs_form="null", context_form="anthropic"),
        "gemini": Faults(no_logprobs=True, error_form="list", context_form="gemini"),
        "openrouter": Faults(logprobs_form="missing", error_inside=0.02, broken_off=0.02),
        "mistral": Faults(no_logprobs=True, logprobs_status=422, error_form="detail"),
        "together": Faults(logprobs_form="lists", no_json_schema=True),
        "vllm": Faults(),
        "vllm, 5 log-probabilities": Faults(most_logprobs=5),
        "vllm, no system role": Faults(no_system=True),
        "vllm, reasoning parser": Faults(hidden_thought=6_000, thought_field="reasoning_content"),
        "vllm, thoughts in the content": Faults(
            hidden_thought=2_000, thought_field="content", ignore_format=True
        ),
        "vllm, a window of 2,048": Faults(
            context=2_048, context_form="vllm", window_field="max_model_len"
        ),
        "vllm, 2 images": Faults(most_images=2),
        "llama.cpp": Faults(no_images=True),
        "llama.cpp, a window of 2,048": Faults(context=2_048, context_form="llama.cpp"),
        "a server that bounds nothing": Faults(
            no_bounds=True, no_detail=True, no_reasoning_effort=True
        ),
        "transformers serve": Faults(
            logprobs_form="missing", ignore_format=True, usage_form="null"
        ),
        "lm studio": Faults(no_json_object=True, logprobs_form="null"),
        "a proxy that sends parts": Faults(
            content_form="parts", usage_form="float", logprobs_form="nulls"
        ),
        "a proxy that cannot count": Faults(usage_form="negative", error_form="text"),
    }
)
