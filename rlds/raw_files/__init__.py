"""Safe reads of untrusted files: archives, compressed streams, HDF5, pickles, images.

`rlds.formats` makes episodes of what is read here.
"""
