"""Safe reads of untrusted files: archives, compressed streams, HDF5, pickles, images.

`rlds.formats` reads episodes with these readers.
"""
