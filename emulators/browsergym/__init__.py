"""BrowserGym's tasks."""
