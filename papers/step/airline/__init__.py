"""AirlineCRM (arXiv 2310.03720): the customer desk of an airline, with five tasks and progress
between none and all.
"""
