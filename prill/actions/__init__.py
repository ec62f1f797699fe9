"""Action grammars: parsers and formatters between text and `Action`."""
