"""Screenshots and page states turned into text that a language model can judge."""
