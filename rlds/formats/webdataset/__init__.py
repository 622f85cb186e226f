"""WebDataset: shards of tar files."""
