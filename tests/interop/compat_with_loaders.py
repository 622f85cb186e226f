"""Runs the code of Octo and OpenVLA beside `rlds.feeds.compat`, and with it; see `test_compat.py`.

Usage: compat_with_loaders.py DATA_DIR . Prints what was found to be equal, or to run.
"""

import importlib.util
import os
import pathlib
import sys
import types

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np

from rlds.feeds.compat import octo, openvla
from rlds_ecosystem.nests import named_leaves

SIZE = (8, 9)


def joined(episodes):
    """The rows of all episodes, the shortest first."""
    columns = [dict(named_leaves(episode)) for episode in episodes]
    columns.sort(key=lambda leaves: len(leaves["action"]))
    return {path: np.concatenate([each[path] for each in columns]) for path in columns[0]}


def check_equal(ours, theirs, but=()):
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    for path in ours.keys() - set(but):
        assert ours[path].dtype == theirs[path].dtype, path
        if ours[path].dtype.kind == "f":
            np.testing.assert_allclose(ours[path], theirs[path], rtol=1e-5, atol=1e-6, err_msg=path)
        else:
            np.testing.assert_array_equal(ours[path], theirs[path], err_msg=path)


def check_statistics(ours, theirs):
    ours, theirs = dict(named_leaves(ours)), dict(named_leaves(theirs))
    assert ours.keys() == theirs.keys()
    for path in ours.keys() - {"num_trajectories"}:  # Theirs may count empty ones.
        np.testing.assert_allclose(ours[path], theirs[path], rtol=1e-6, atol=1e-7, err_msg=path)


def run_octo(directory):
    """Octo's own function for Bridge, which calls TensorFlow, in both."""
    from octo.data.dataset import make_single_dataset
    from octo.data.oxe.oxe_standardization_transforms import bridge_dataset_transform
    from octo.utils.spec import ModuleSpec

    dataset = {
        "name": "bridge_dataset",
        "data_dir": str(directory),
        "shuffle": False,
        "language_key": "language_instruction",
        "image_obs_keys": {"primary": "image_0"},
        "proprio_obs_key": "proprio",
        "standardize_fn": ModuleSpec.create(bridge_dataset_transform),
    }
    given = {
        "traj_transform_kwargs": {"window_size": 2, "action_horizon": 3},
        "frame_transform_kwargs": {"resize_size": SIZE},
    }
    theirs = make_single_dataset(dataset, train=True, **given)
    ours = octo.make_single_dataset(dataset, train=True, **given)
    check_equal(joined(ours.iterator()), joined(theirs.iterator()))
    check_statistics(ours.dataset_statistics, theirs.dataset_statistics)


def make_empty(*packages):
    """Packages without what their own `__init__` imports: models, and the loaders."""
    root = importlib.util.find_spec("prismatic").submodule_search_locations[0]
    for package in packages:
        empty = sys.modules[package] = types.ModuleType(package)
        empty.__path__ = [os.path.join(root, *package.split(".")[1:])]
        empty.__spec__ = importlib.util.spec_from_loader(package, None, is_package=True)
        empty.__spec__.submodule_search_locations = empty.__path__


def run_openvla(directory):
    """What OpenVLA makes of Bridge, and what `rlds.robotics` does, without its functions."""
    make_empty("prismatic", "prismatic.vla", "prismatic.vla.datasets")
    import tensorflow as tf
    from prismatic.vla.datasets.rlds import dataset as loader
    from prismatic.vla.datasets.rlds.oxe.materialize import make_oxe_dataset_kwargs

    given = make_oxe_dataset_kwargs("bridge_orig", directory, load_proprio=False)
    given |= {"shuffle": False, "action_proprio_normalization_type": "bounds_q99"}
    # As its `make_single_dataset`, which fails for an episode of which nothing is left.
    theirs, statistics = loader.make_dataset_from_rlds(**given, train=True)
    theirs = theirs.filter(lambda trajectory: tf.shape(trajectory["action"])[0] > 0)
    theirs = loader.apply_trajectory_transforms(
        theirs, train=True, goal_relabeling_strategy="uniform"
    )
    theirs = loader.apply_frame_transforms(theirs, train=True, resize_size=SIZE)
    openvla.loading.keep_labelled = lambda samples, is_needed: samples  # There is no text here.
    ours = openvla.EpisodicRLDSDataset(directory, "bridge_orig", dict, SIZE)
    goals = ("task/timestep", "task/image_primary")
    check_equal(joined(ours.dataset.iterator()), joined(theirs.as_numpy_iterator()), goals)
    check_statistics(ours.dataset_statistics["bridge_orig"], statistics)


def run_script(directory):
    """OpenVLA's `get_vla_dataset_and_collator`, with one import that is another."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    make_empty("prismatic", "prismatic.vla", "prismatic.models", "prismatic.models.backbones")
    make_empty("prismatic.models.backbones.llm", "prismatic.util")
    vision = types.ModuleType("prismatic.models.backbones.vision")
    vision.ImageTransform = object
    sys.modules[vision.__name__] = vision
    sys.modules["prismatic.vla.datasets"] = openvla
    from prismatic.models.backbones.llm.prompting import PurePromptBuilder
    from prismatic.vla.materialize import get_vla_dataset_and_collator

    names = ["<unk>", "<pad>", "<s>", "</s>", *(f"t{number}" for number in range(400))]
    words = models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="<unk>")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    dataset, _, collator = get_vla_dataset_and_collator(
        directory,
        "fractal20220817_data",
        lambda image: torch.tensor(np.asarray(image)).permute(2, 0, 1).float(),
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **tokens),
        PurePromptBuilder,
        (3, 16, 16),
        image_aug=True,
    )
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=2, collate_fn=collator)
    batch = next(iter(loader))
    assert batch["pixel_values"].shape == (4, 3, 16, 16)
    assert batch["labels"].shape == batch["input_ids"].shape


def main(directory):
    packages = {
        "octo": run_octo,
        "prismatic": run_openvla,
        "transformers": run_script,
    }
    for package, run in packages.items():
        if importlib.util.find_spec(package):
            run(pathlib.Path(directory))
            print(f"checked: {package}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
