"""Downloads: recorded episodes, with their tags, as a log, a dataset, or another format.

    exports.export(["data/episodes/x1", "data/episodes/x2"], "drive", "tfds", name="drive")

An export needs no server and no database, only the directories of the episodes.

recordings      a recorded episode on the disk: its log and its annotations
recipes         the selected recordings in their order, and the changes to them
targets         the export formats
labels          the annotations of reviewers, next to the data
exports         the export: a folder, or a ZIP file
jobs            exports in processes of their own
"""
