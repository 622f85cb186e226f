"""The process of one player: it makes an environment, steps, renders and records it.

The server starts it as `python -m rlds_creator.worker FD`, and speaks with it over the socket of
that number, see `link`. It may run in an interpreter that has other packages than the server's: it
needs those of `envlogger`, NumPy and Pillow.
"""
