"""A reward function for verl: set `reward.custom_reward_function.path=examples/verl_reward.py` and
the reward manager `naive`.
"""

import prill
from prill.refine.rewards import make_compute_score

compute_score = make_compute_score(prill.reward("modular", captioner="text", model="gpt-4o-mini"))
