"""All backends fulfil the contract that is shipped for custom backends."""

import pathlib
import tempfile
import unittest

import numpy as np
import tensorflow_datasets as tfds

import envlogger
from envlogger.backends.in_memory_backend import InMemoryBackendReader, InMemoryBackendWriter
from envlogger.backends.tfds_backend_writer import DatasetConfig, TFDSBackendWriter
from envlogger.testing import backend_contract
from envlogger.testing.backend_contract import BackendContract
from envlogger.tools.convert_tfds_to_riegeli import convert_tf_dataset_to_riegeli


class InMemoryTest(BackendContract, unittest.TestCase):
    def make_writer(self, **kwargs):
        self.writer = InMemoryBackendWriter(**kwargs)
        return self.writer

    def make_reader(self):
        return InMemoryBackendReader(self.writer)


class OnDisk(BackendContract):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)


class RiegeliTest(OnDisk, unittest.TestCase):
    def make_writer(self, **kwargs):
        return envlogger.RiegeliBackendWriter(self.directory, **kwargs)

    def make_reader(self):
        return envlogger.Reader(self.directory)


class RiegeliInSmallPiecesTest(RiegeliTest):
    def make_writer(self, **kwargs):
        options = "transpose,chunk_size:300,parallelism:3"
        return envlogger.RiegeliBackendWriter(self.directory, 2, options, **kwargs)


class RiegeliFlushingTest(RiegeliTest):
    def make_writer(self, **kwargs):
        return envlogger.RiegeliBackendWriter(
            self.directory, max_episodes_per_file=0, flush_scheduler=lambda step: True, **kwargs
        )


def make_feature(spec):
    return tfds.features.Tensor(shape=spec.shape, dtype=spec.dtype)


class TFDSTest(OnDisk, unittest.TestCase):
    """Reads with TFDS, and converts the episodes back to recordings."""

    episode_metadata_is_optional = False

    def make_writer(self, **kwargs):
        config = DatasetConfig(
            name="contract",
            observation_info={
                name: make_feature(spec) for name, spec in backend_contract.OBSERVATION_SPEC.items()
            },
            action_info=make_feature(backend_contract.ACTION_SPEC),
            reward_info=np.float64,
            discount_info=np.float64,
            step_metadata_info={
                name: make_feature(spec) for name, spec in backend_contract.CUSTOM_DATA_SPEC.items()
            },
            episode_metadata_info={"trial": np.int64},
        )
        has_metadata = "metadata" in kwargs
        return TFDSBackendWriter(
            self.directory, config, store_ds_metadata=has_metadata, float64="bytes", **kwargs
        )

    def make_reader(self):
        recording = pathlib.Path(tempfile.mkdtemp(dir=self.directory))
        builder = tfds.builder_from_directory(self.directory)
        if not builder.info.splits["train"].num_examples:
            envlogger.RiegeliBackendWriter(recording).close()
        else:
            dataset = builder.as_dataset(split="train")
            convert_tf_dataset_to_riegeli(dataset, recording, metadata=builder.info.metadata)
        return envlogger.Reader(recording)


class FusingWriter(InMemoryBackendWriter):
    def _record_step(self, data, is_new_episode):
        super()._record_step(data, is_new_episode and not self.steps)


class AliasingWriter(InMemoryBackendWriter):
    def _record_step(self, data, is_new_episode):
        super()._record_step(data, is_new_episode)
        self.steps[-1] = data


def find_failures(writer_type):
    class Case(InMemoryTest):
        def make_writer(self, **kwargs):
            self.writer = writer_type(**kwargs)
            return self.writer

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    return {case.id().rpartition(".")[2] for case, _ in result.failures + result.errors}


def test_the_contract_detects_faulty_backends():
    assert find_failures(InMemoryBackendWriter) == set()
    assert "test_separates_episodes" in find_failures(FusingWriter)
    assert find_failures(AliasingWriter) == {"test_copies_arrays_that_the_environment_reuses"}
