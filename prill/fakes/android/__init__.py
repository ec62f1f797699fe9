"""A fake Android phone below the real tools: it speaks the protocols of the adb server, UiAutomator2 and the emulator."""
