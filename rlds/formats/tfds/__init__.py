"""The folders of TFDS datasets."""
