"""Android phones and emulators, through adb or Appium."""
