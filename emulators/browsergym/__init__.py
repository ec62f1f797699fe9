"""BrowserGym tasks as an environment."""
