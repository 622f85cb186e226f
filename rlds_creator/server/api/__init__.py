"""What the pages call: a class for each thing that there is, with its routes."""
