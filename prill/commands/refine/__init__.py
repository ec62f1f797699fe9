"""Verbs that make agents better: captions, rows to train on, training, retries."""
