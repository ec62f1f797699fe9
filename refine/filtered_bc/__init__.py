"""`prill filtered-bc`: an agent learns from those of its attempts that a judge accepts."""
