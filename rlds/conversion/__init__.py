"""Datasets in any format, made of parts that several processes write.

    source, or a view of one
      |  cut: ranges of up to 256 episodes, whatever the number of processes   (parts)
      v
    parts: datasets in the format that is made, each written by one worker     (staging)
      |  the same export, which copies its payload from the parts
      v
    the dataset: read back by the workers, then it gets its name               (exporting)

A part is there or not. So a run that was killed goes on with those that are there, and the bytes of
the result do not depend on who made which part.
"""
