"""A test case that compares steps and datasets."""

# ruff: noqa: PT009 - this is a unittest-style test case.

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from rlds import rlds_types

__all__ = ["TransformationsTest"]


class TransformationsTest(parameterized.TestCase):
    """Assertions that steps and datasets are equal; a failure names the field that differs."""

    def expect_equal_step(self, step: rlds_types.Step, expected_step: rlds_types.Step) -> None:
        """Asserts that a step has the expected fields, in shape and in value.

        Args:
          step: a step; unexpected fields are ignored.
          expected_step: the expected fields; they may be nested, and datasets.
        """
        for name, expected in expected_step.items():
            self.assertIn(name, step)
            self._expect_equal(step[name], expected, name)

    def _expect_equal(self, value: Any, expected: Any, path: str) -> None:
        if isinstance(expected, tf.data.Dataset):
            self.expect_equal_datasets(value, expected)
        elif isinstance(expected, Mapping):
            self.assertCountEqual(value, expected, path)
            for name in expected:
                self._expect_equal(value[name], expected[name], f"{path}/{name}")
        elif isinstance(expected, tuple):
            self.assertEqual(len(value), len(expected), f"length of {path}")
            for i, (member, expected_member) in enumerate(zip(value, expected)):
                self._expect_equal(member, expected_member, f"{path}/{i}")
        else:
            self.assertEqual(np.shape(value), np.shape(expected), f"shape of {path}")
            np.testing.assert_array_equal(np.asarray(value), np.asarray(expected), path)

    def expect_equal_datasets(self, ds: tf.data.Dataset, expected_ds: tf.data.Dataset) -> None:
        """Asserts that two datasets are equal in length, and element by element.

        Args:
          ds: a dataset of dicts: steps or episodes.
          expected_ds: the expected dataset; for its elements see `expect_equal_step`.
        """
        elements, expected_elements = list(ds), list(expected_ds)
        self.assertEqual(len(elements), len(expected_elements), "length of the dataset")
        for element, expected in zip(elements, expected_elements):
            self.expect_equal_step(element, expected)

    def expect_nested_dict_equality(
        self, obtained: Any, expected: Any, approximate: bool = False
    ) -> None:
        """Asserts that two nested dicts of sequences are equal.

        Args:
          obtained: the result of a computation.
          expected: the expected value.
          approximate: whether numbers may differ by less than 1e-5.
        """
        if isinstance(expected, Mapping):
            self.assertCountEqual(obtained, expected)
            for name in expected:
                self.expect_nested_dict_equality(obtained[name], expected[name], approximate)
            return
        self.assertEqual(len(obtained), len(expected))
        for value, expected_value in zip(obtained, expected):
            if approximate:
                self.assertLess(abs(value - expected_value), 1e-5)
            else:
                self.assertEqual(value, expected_value)
