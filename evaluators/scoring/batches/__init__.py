"""Batch judging: request files for `vllm run-batch`, OpenAI's and Anthropic's batch APIs.

Judges are not aware of batches: they run as usual, with stored answers in place of an endpoint.
Requests without a stored answer are written to the next request files.
"""
