"""What all of `riegeli` shares; a module path of Google's package."""
