"""Compares the code of Octo, OpenVLA and openpi with `rlds.feeds.compat`, or runs it with that.

Usage: compat_with_loaders.py DATA_DIR . Prints the checks that passed; see `test_compat.py`, and
for the data `arm_datasets.py`: a folder of RLDS, one of LeRobot, and a log of EnvLogger. Scripts
run as published, except for some imports.
"""

import functools
import importlib.util
import itertools
import os
import pathlib
import runpy
import sys
import types
from unittest import mock

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import arm_datasets
import numpy as np

from rlds.feeds.compat import octo, openpi, openvla
from rlds_ecosystem.model.nests import named_leaves, nest

SIZE = (8, 9)
NAMES = {form: fields[0] for form, fields in arm_datasets.FIELDS.items()}


def loader_kwargs(form, directory):
    """Returns the arguments of OpenVLA and Octo for a dataset; logs get an instruction."""
    kwargs = arm_datasets.loader_kwargs(form, directory)
    if form == "log":
        kwargs |= {"standardize_fn": with_instruction, "language_key": "language_instruction"}
    return kwargs


def with_instruction(trajectory):
    text = np.full(len(trajectory["action"]), b"pick it up", object)
    return {**trajectory, "language_instruction": text}


def module_of(name, **content):
    module = types.ModuleType(name)
    vars(module).update(content)
    return module


def all_rows(episodes):
    """Returns the rows of all episodes, the shortest episode first."""
    columns = [dict(named_leaves(episode)) for episode in episodes]
    columns.sort(key=lambda leaves: len(leaves["action"]))
    return {path: np.concatenate([each[path] for each in columns]) for path in columns[0]}


def check_equal(ours, theirs, excluded=()):
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    for path in ours.keys() - set(excluded):
        assert ours[path].dtype == theirs[path].dtype, path
        if ours[path].dtype.kind == "f":
            np.testing.assert_allclose(ours[path], theirs[path], rtol=1e-5, atol=1e-6, err_msg=path)
        else:
            np.testing.assert_array_equal(ours[path], theirs[path], err_msg=path)


def check_statistics(ours, theirs):
    ours, theirs = dict(named_leaves(ours)), dict(named_leaves(theirs))
    assert ours.keys() == theirs.keys()
    for path in ours.keys() - {"num_trajectories"}:  # The loaders may count empty ones.
        np.testing.assert_allclose(ours[path], theirs[path], rtol=1e-6, atol=1e-7, err_msg=path)


def with_constants(trajectory):
    """Applies Octo's function for Bridge, and adds a constant action and state."""
    import tensorflow as tf
    from octo.data.oxe.oxe_standardization_transforms import bridge_dataset_transform

    trajectory = bridge_dataset_transform(trajectory)
    observation, action = trajectory["observation"], trajectory["action"]
    same = tf.zeros_like(action[:, :1]) + 0.3
    trajectory["action"] = tf.concat([same, action[:, 1:]], axis=1)
    observation["proprio"] = tf.concat([observation["proprio"][:, :-1], same], axis=1)
    return trajectory


def run_octo(directory):
    """Compares samples of Bridge with Octo's own function, and with constant elements."""
    from octo.data.dataset import make_single_dataset
    from octo.data.oxe.oxe_standardization_transforms import bridge_dataset_transform
    from octo.data.utils.data_utils import NormalizationType
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
    options = {
        "traj_transform_kwargs": {"window_size": 2, "action_horizon": 3},
        "frame_transform_kwargs": {"resize_size": SIZE},
    }
    bounds = {"action_proprio_normalization_type": NormalizationType.BOUNDS}
    bounds["standardize_fn"] = ModuleSpec.create(with_constants)
    for changes in ({}, bounds):
        theirs = make_single_dataset({**dataset, **changes}, train=True, **options)
        ours = octo.make_single_dataset({**dataset, **changes}, train=True, **options)
        check_equal(all_rows(ours.iterator()), all_rows(theirs.iterator()))
        check_statistics(ours.dataset_statistics, theirs.dataset_statistics)


def make_empty(*packages):
    """Replaces packages by empty ones, without the imports of models and loaders."""
    root = importlib.util.find_spec("prismatic").submodule_search_locations[0]
    for package in packages:
        empty = sys.modules[package] = types.ModuleType(package)
        empty.__path__ = [os.path.join(root, *package.split(".")[1:])]
        empty.__spec__ = importlib.util.spec_from_loader(package, None, is_package=True)
        empty.__spec__.submodule_search_locations = empty.__path__


def run_openvla(directory):
    """Compares samples of Bridge of OpenVLA with those of `rlds.robotics`."""
    make_empty("prismatic", "prismatic.vla", "prismatic.vla.datasets")
    import tensorflow as tf
    from prismatic.vla.datasets.rlds import dataset as loader
    from prismatic.vla.datasets.rlds.oxe.materialize import make_oxe_dataset_kwargs

    kwargs = make_oxe_dataset_kwargs("bridge_orig", directory, load_proprio=False)
    kwargs |= {"shuffle": False, "action_proprio_normalization_type": "bounds_q99"}
    # The code of its `make_single_dataset`, which fails if an episode becomes empty.
    theirs, statistics = loader.make_dataset_from_rlds(**kwargs, train=True)
    theirs = theirs.filter(lambda trajectory: tf.shape(trajectory["action"])[0] > 0)
    theirs = loader.apply_trajectory_transforms(
        theirs, train=True, goal_relabeling_strategy="uniform"
    )
    theirs = loader.apply_frame_transforms(theirs, train=True, resize_size=SIZE)
    openvla.loading.keep_labelled = lambda samples, is_needed: samples  # There are no texts.
    ours = openvla.EpisodicRLDSDataset(directory, "bridge_orig", dict, SIZE)
    goals = ("task/timestep", "task/image_primary")
    check_equal(all_rows(ours.dataset.iterator()), all_rows(theirs.as_numpy_iterator()), goals)
    check_statistics(ours.dataset_statistics["bridge_orig"], statistics)


def run_octo_script(directory):
    """Runs Octo's example for PyTorch, which trains on a mixture of Open X in a bucket."""
    from octo.data import dataset

    script = pathlib.Path(dataset.__file__).parents[2] / "examples" / "06_pytorch_oxe_dataloader.py"
    for form in NAMES:
        batches = []

        def few(batch_stream, batches=batches):
            batches += itertools.islice(batch_stream, 2)
            return []

        def make_kwargs(mix, path, *, load_camera_views, form=form):
            return [loader_kwargs(form, directory)], [1.0]

        modules = {
            "octo.data.dataset": octo,
            "octo.data.oxe": module_of("oxe", make_oxe_dataset_kwargs_and_weights=make_kwargs),
            "tqdm": module_of("tqdm", tqdm=few),
        }
        with mock.patch.dict(sys.modules, modules):
            runpy.run_path(str(script))
        for _, batch in batches:
            assert batch["observation"]["image_primary"].shape == (16, 2, 256, 256, 3), form
            assert batch["action"].shape[:3] == (16, 2, 4), form


def run_openpi(directory):
    """Runs openpi's `create_rlds_data_loader`, without its models and their transforms."""
    models = [f"openpi.{name}" for name in ("models", "models.model", "models.tokenizer")]
    names = ["lerobot", "common", "datasets", "lerobot_dataset"]
    missing_modules = [".".join(names[:count]) for count in range(1, 5)]
    missing_modules += [*models, "openpi.shared.array_typing", "openpi.training.config"]
    sys.modules |= {name: mock.MagicMock() for name in ("flax", *missing_modules)}
    sys.modules["flax.traverse_util"] = sys.modules["flax"].traverse_util = module_of(
        "traverse_util",
        flatten_dict=lambda tree, sep: dict(named_leaves(tree)),
        unflatten_dict=lambda leaves, sep: nest(leaves),
    )

    def as_droid(trajectory):
        if "action_dict" in trajectory:
            return trajectory
        action, observation = trajectory["action"], trajectory["observation"]
        image = observation["images"]["wrist"] if "images" in observation else observation["image"]
        state = observation["state"].astype(np.float32)
        cameras = ("exterior_image_1_left", "exterior_image_2_left", "wrist_image_left")
        return {
            "action_dict": {"joint_position": action[:, :2], "gripper_position": action[:, 2:]},
            "observation": {
                **dict.fromkeys(cameras, image),
                "joint_position": state[:, :2],
                "gripper_position": state[:, 2:],
            },
            "language_instruction": with_instruction(trajectory)["language_instruction"],
        }

    dataset = functools.partial(openpi.DroidRldsDataset, standardize_fn=as_droid)
    sys.modules["openpi.training.droid_rlds_dataset"] = module_of("ours", DroidRldsDataset=dataset)
    from openpi.training import data_loader

    nothing = types.SimpleNamespace(inputs=[])
    actions_only = types.SimpleNamespace(inputs=[lambda row: {"actions": row["actions"]}])
    for form, name in NAMES.items():
        version = "1.0.0" if form == "rlds" else ""
        config = types.SimpleNamespace(
            rlds_data_dir=directory,
            action_space=openpi.DroidActionSpace.JOINT_POSITION,
            datasets=[openpi.RLDSDataset(name, version, 1.0)],
            repo_id="droid",
            repack_transforms=nothing,
            data_transforms=nothing,
            model_transforms=actions_only,
            use_quantile_norm=False,
        )
        loader = data_loader.create_rlds_data_loader(
            config, 4, 6, shuffle=True, num_batches=3, skip_norm_stats=True
        )
        batches = [actions for _, actions in loader]
        assert [batch.shape[:2] for batch in batches] == [(6, 4)] * 3, form


def run_openvla_script(directory):
    """Runs OpenVLA's `get_vla_dataset_and_collator`, with one import replaced."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    make_empty("prismatic", "prismatic.vla", "prismatic.models", "prismatic.models.backbones")
    make_empty("prismatic.models.backbones.llm", "prismatic.util")
    vision = types.ModuleType("prismatic.models.backbones.vision")
    vision.ImageTransform = object
    sys.modules[vision.__name__] = vision
    dataset_kwargs = {name: loader_kwargs(form, directory) for form, name in NAMES.items()}
    dataset = functools.partial(openvla.RLDSDataset, dataset_kwargs=dataset_kwargs)
    ours = {name: getattr(openvla, name) for name in openvla.__all__}
    sys.modules["prismatic.vla.datasets"] = module_of("ours", **ours | {"RLDSDataset": dataset})
    from prismatic.models.backbones.llm.prompting import PurePromptBuilder
    from prismatic.vla.materialize import get_vla_dataset_and_collator

    names = ["<unk>", "<pad>", "<s>", "</s>", *(f"t{token}" for token in range(400))]
    words = models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="<unk>")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    for name in ("fractal20220817_data", *NAMES.values()):
        dataset, _, collator = get_vla_dataset_and_collator(
            directory,
            name,
            lambda image: torch.tensor(np.asarray(image)).permute(2, 0, 1).float(),
            PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **tokens),
            PurePromptBuilder,
            (3, 16, 16),
            image_aug=True,
        )
        loader = torch.utils.data.DataLoader(
            dataset, batch_size=4, num_workers=2, collate_fn=collator
        )
        batch = next(iter(loader))
        assert batch["pixel_values"].shape == (4, 3, 16, 16), name
        assert batch["labels"].shape == batch["input_ids"].shape, name


def main(directory):
    needed = {
        run_octo: ["octo"],
        run_octo_script: ["octo", "torch"],
        run_openvla: ["prismatic"],
        run_openvla_script: ["prismatic", "torch", "transformers"],
        run_openpi: ["openpi", "torch"],
    }
    for run, packages in needed.items():
        if all(map(importlib.util.find_spec, packages)):
            run(pathlib.Path(directory))
            print(f"checked: {run.__name__}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
