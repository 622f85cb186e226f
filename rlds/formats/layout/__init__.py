"""The format `layout`: episodes in files of any kind, with a YAML description of their arrays.

`layouts` parses the description, `arrays` reads the arrays, `source` converts them to episodes, and
`proposals` drafts a layout for unknown files.
"""
