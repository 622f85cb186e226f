"""The schema of the stored records, as Python classes."""
