"""Attacks on judges: families of rewrites that change what a trajectory says; `families.py` lists them."""
