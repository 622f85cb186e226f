"""The process of one player: it creates, steps, renders and records an environment.

The server starts it as `python -m rlds_creator.worker FD`, and exchanges messages with it over the
socket with the descriptor FD, see `link`. The interpreter may have other packages than the
server's: the worker needs `envlogger`, NumPy and Pillow.
"""
