"""LeRobot datasets.

    episodes of steps                    episodes of any source
       ^                                    |  rlds_rows; lerobot_rows for episodes from LeRobot:
       |  source: columns to fields         |  columns (feature_plan, kept_features), statistics
       |                                    v  (feature_statistics), packets of video (cameras)
    rows and packets of an episode       a NewEpisode
       ^                                    |
       |  data_files, videos                |  dataset_files: files of the version, and tables
       |                                    v
    locations of both in the files       files of a dataset, or of a staged dataset
       ^                                    |  final_files: staged datasets to the final dataset
       |  episode_table, small_files        v
    files of the dataset (layout)        files of the dataset (layout)

`export` chooses the writer of rows. `recorder` adds recorded episodes one by one, with `rlds_rows`.
`recovering` compares the tables with the data, and writes the complete episodes with
`dataset_files`. `columns`, `tables` and `parquet_rows` are the types, the schemas and the safe
reading of Parquet.
"""
