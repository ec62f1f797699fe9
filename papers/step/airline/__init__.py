"""AirlineCRM (arXiv 2310.03720): an airline's customer service site with five tasks that measure
partial progress.
"""
