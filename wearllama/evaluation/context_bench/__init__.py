"""The Wearable Assistant Context Bench: which scene does the user mean now? (github.com/n-dryer, MIT; data is the user's)."""
