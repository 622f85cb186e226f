import pytest

from rlds.formats.d4rl.families import DATASETS, default_boundary, family_of, find_dataset


def test_every_file_belongs_to_one_dataset():
    assert len(DATASETS) == 155
    assert len({dataset.file for dataset in DATASETS.values()}) == len(DATASETS)
    for name, dataset in DATASETS.items():
        assert find_dataset(name) == find_dataset(dataset.file) == dataset
        assert family_of(dataset.file) == dataset.family


def test_reference_scores_are_ordered_and_come_in_pairs():
    for dataset in DATASETS.values():
        if dataset.min_score is None:
            assert dataset.max_score is None
        else:
            assert dataset.min_score < dataset.max_score


@pytest.mark.parametrize("family", sorted({dataset.family for dataset in DATASETS.values()}))
def test_families_of_unpublished_files_follow_from_words_of_their_names(family):
    """The names end in a version that was never published."""
    for dataset in DATASETS.values():
        if dataset.family == family and not dataset.name.startswith("bullet-maze2d"):
            assert family_of(f"{dataset.name}9.hdf5") == family


def test_infos_that_are_an_index_set_the_boundaries():
    rules = default_boundary("maze2d", "maze2d.hdf5", has_timeouts=True, infos_is_index=True)
    assert rules == ("infos_index", "flags")
