"""How the tables came to be what they are: a module for each change, applied in turn.

A module has `revision`, the `down_revision` that it follows, and `upgrade`. It never changes once
it is released.
"""

__all__: list[str] = []
