"""Input and output: line readers, file kinds, error messages, and atomic writes that never
overwrite inputs.
"""
