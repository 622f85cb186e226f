"""Storage backends: writers and readers of recorded steps, and the use of each backend."""
