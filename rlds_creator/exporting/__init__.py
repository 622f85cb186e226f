"""Downloads: recorded episodes, with their tags, as a log, a dataset, or another format.

    exports.export(["data/episodes/x1", "data/episodes/x2"], "drive", "tfds", name="drive")

Knows no server and no database: all it needs is in the directories of the episodes.

recordings      an episode on the disk: its log, and what was said about it
recipes         which of them a download has, in which order, and what changes of them
targets         the formats
exports         all of that, put together: a folder, or a ZIP file
jobs            exports in processes of their own
"""
