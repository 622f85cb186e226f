"""Storage backends: writers and readers of recorded steps, and when to use each."""
