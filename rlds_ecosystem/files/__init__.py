"""Files of this machine and of object stores: atomic replacement, locks, caches."""
