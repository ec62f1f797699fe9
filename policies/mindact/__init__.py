"""MindAct and Self-MAP: the next action on a recorded page by a tournament among its candidates, with a memory of earlier turns."""
