"""The builder of every format writes a dataset with the episodes of its source."""

import conversions
import hostile_sources
import pytest

import rlds.sources
import tfds_builders

BUILDERS = {
    kind.source_class: kind
    for kind in (getattr(tfds_builders, name) for name in tfds_builders.__all__)
    if hasattr(kind, "source_class")
}
# Datasets of TFDS are copied, and RL Unplugged has configs: both have tests of their own.
NAMES = [name for name in hostile_sources.NAMES if not name.startswith(("folder_", "rlu_"))]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_dataset_has_the_episodes_of_its_source(name, tmp_path):
    (target := tmp_path / "made").mkdir()
    path = hostile_sources.write_raw(name, tmp_path / "raw")
    format = hostile_sources.FORMATS[name].format
    conversions.check_conversion(
        lambda: rlds.sources.open(path, "all").source,
        target,
        builder=BUILDERS.get(rlds.sources.formats()[format].load()),
        path=path,
    )
