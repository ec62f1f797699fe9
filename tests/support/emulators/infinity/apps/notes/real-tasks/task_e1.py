import requests


def verify(server_url: str) -> tuple[bool, str]:
    state = requests.get(f"{server_url}/api/state", timeout=10).json()
    print("a verifier may print")
    done = [note["text"] for note in state["notes"] if note["done"]]
    return done == ["Buy milk"], f"done: {done}"
