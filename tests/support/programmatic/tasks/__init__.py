"""Programs for families of MiniWoB++ tasks, by the goal: from a match of it and the page to every
move that the page allows.
"""
