"""The dataset of records."""
