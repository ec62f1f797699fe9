"""A small customer service site of an airline (AirlineCRM of arXiv 2310.03720)."""
