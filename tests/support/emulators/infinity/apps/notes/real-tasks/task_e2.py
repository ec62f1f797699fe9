import requests


def verify(server_url: str) -> tuple[bool, str]:
    state = requests.get(f"{server_url}/api/state", timeout=10).json()
    return state["dark"] is True, f"dark: {state['dark']}"
