"""Programs to start from, to run with `python -m envlogger.examples.<name>`."""
