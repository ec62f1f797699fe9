"""Programs for families of MiniWoB++ tasks. Each takes a match of the goal and the page, and
returns every move that the page allows.
"""
