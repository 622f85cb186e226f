"""robomimic's format of demonstrations and its dialects, in both directions."""
