"""Language models: one OpenAI-compatible client, and llama.cpp in process."""
