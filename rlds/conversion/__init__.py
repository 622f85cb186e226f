"""Datasets in any format, made of parts that several processes write.

    source, or a view of one
      |  parts: cut into runs of up to 256 episodes, or 32 if their sizes are unknown,
      |         whatever the number of processes
      v
    parts in the format that is made, each written by one worker               (staging, beam)
      |  the same export, which copies its payload from the parts
      v
    a draft of the dataset; notes of digests and origins of its episodes       (watching)
      |  exporting: the workers read it back, and compare the digests
      v
    the dataset, under its name

A part is there or not. So a run that was killed goes on with those that are there, and the bytes of
the result do not depend on who made which part.
"""
