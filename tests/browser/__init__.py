"""The live page in headless Chromium."""
