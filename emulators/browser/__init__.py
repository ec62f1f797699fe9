"""Any web page in Chromium."""
