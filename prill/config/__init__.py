"""Frozen run configurations, read strictly from Python, TOML and the command line."""

from prill.config.values import Config, PartConfig, load_table, merged

__all__ = ["Config", "PartConfig", "load_table", "merged"]
