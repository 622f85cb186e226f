"""The format `layout`: episodes from files of any kind, whose arrays a YAML file describes.

`layouts` parses the description, `arrays` reads the arrays, `source` makes episodes of them, and
`proposals` drafts a layout for unknown files. The safe reads below are in `rlds.raw_files`.
"""
