"""The action grammars of the field, written and read: text to `Action` and back."""
