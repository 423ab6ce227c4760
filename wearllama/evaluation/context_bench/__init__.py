"""The Wearable Assistant Context Bench: which scene does the user mean now? Data comes from the user's clone."""
