"""Studies of docs/results/: what is trained and evaluated, and the tables that come of it (tools/results.py)."""
