"""The reward function of verl: `reward.custom_reward_function.path=examples/verl_reward.py`, and the manager `naive`."""

import prill
from prill.refine.rewards import compute_score_of

compute_score = compute_score_of(prill.reward("modular", captioner="text", model="gpt-4o-mini"))
