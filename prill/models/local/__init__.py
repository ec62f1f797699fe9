"""A model in this process, through transformers."""
