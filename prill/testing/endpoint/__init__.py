"""An OpenAI-compatible endpoint that answers by script, with faults on demand."""
