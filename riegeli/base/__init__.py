"""Shared types of `riegeli`; a module path of Google's package."""
