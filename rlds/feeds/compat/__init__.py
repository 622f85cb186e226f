"""Drop-in replacements for the data loaders of other projects: swap one import, keep the script.

    from rlds.feeds.compat.openvla import RLDSBatchTransform, RLDSDataset
    from rlds.feeds.compat.octo import make_interleaved_dataset, make_single_dataset
    from rlds.feeds.compat.openpi import DroidRldsDataset
    from rlds.feeds.compat.lerobot import LeRobotDataset
    from rlds.feeds.compat.gr00t import ShardedSingleStepDataset

Names, arguments and samples equal the original loaders; TensorFlow is not needed. Datasets
may be in any format that `rlds.sources.open` reads.
"""
