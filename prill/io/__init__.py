"""Input and output: lines, file kinds, error messages, atomic writes that never overwrite
inputs.
"""
