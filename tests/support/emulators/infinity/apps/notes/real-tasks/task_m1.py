import requests


def verify(server_url: str) -> tuple[bool, str]:
    state = requests.get(f"{server_url}/api/state", timeout=10).json()
    done = [note["text"] for note in state["notes"] if note["done"]]
    return done == ["Water plants"], f"done: {done}"
