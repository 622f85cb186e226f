"""A source becomes the files of a dataset: the job, its stages, and the check of the result."""
