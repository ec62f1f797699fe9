"""Screen models: a screenshot in, a native tool call out, in the grammars that today's models were trained on."""
