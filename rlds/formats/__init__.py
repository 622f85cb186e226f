"""Raw formats: a folder for each, with how it is read and how it is written."""
