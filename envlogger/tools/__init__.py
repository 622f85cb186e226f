"""Programs to run with `python -m envlogger.tools.<name>`."""
