import requests


def verify(server_url: str) -> tuple[bool, str]:
    state = requests.get(f"{server_url}/api/state", timeout=10).json()
    texts = [note["text"] for note in state["notes"]]
    return texts == ["Buy milk", "Call Ada", "Water plants"], f"notes: {texts}"
