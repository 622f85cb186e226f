"""Raw formats: a folder for each format, with its reader and its export."""
