"""Reading files of other people: archives, compressed streams, HDF5, pickles, images."""
