"""Conversion of datasets to any format, in parts that several processes write.

    source or view
      |  parts: groups of up to 256 episodes, or 32 if their sizes are unknown;
      |         independent of the number of processes
      v
    parts in the target format, each written by one worker              (staging, beam)
      |  the same export, which copies the values from the parts
      v
    a draft of the dataset; checksums and origins of its episodes       (watching)
      |  exporting: the workers read the draft back, and compare the checksums
      v
    the dataset, renamed to its path

Parts are written atomically. A killed run can therefore resume with the finished parts, and the
bytes of the dataset do not depend on the workers.
"""
