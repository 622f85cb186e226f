"""Datasets of LeRobot.

    episodes of steps                    episodes of any source
       ^                                    |  rlds_rows; lerobot_rows if they came from LeRobot:
       |  source: columns as fields         |  columns (feature_plan, kept_features), statistics
       |                                    v  (feature_statistics), packets of video (cameras)
    rows and packets of an episode       a NewEpisode
       ^                                    |
       |  data_files, videos                |  dataset_files: files of the version, and tables
       |                                    v
    locations of both in the files       files of one part, or of the whole dataset
       ^                                    |  final_files: parts to the whole dataset, by workers
       |  episode_table, small_files        v
    files of the dataset (layout)        files of the dataset (layout)

`export` chooses the way of writing. `recorder` adds recorded episodes one by one, by `rlds_rows`.
`recovering` compares the tables with the data, and writes the complete episodes by `dataset_files`.
`columns`, `tables` and `parquet_rows` are the types, the schemas and the safe reading of Parquet.
"""
