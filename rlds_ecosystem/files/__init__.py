"""Files: of this machine and of object stores, replaced as a whole, shared by processes."""
