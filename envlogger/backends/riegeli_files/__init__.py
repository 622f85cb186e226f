"""The files of a dataset in Riegeli format: how a shard is laid out, written, read and rebuilt."""
