"""Reading and writing files of records; a module path of Google's package."""
