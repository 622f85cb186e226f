"""ACT and ALOHA: folders of HDF5 files, an episode each."""
