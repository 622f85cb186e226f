"""The meaning of rows: equal in every format, after every edit, or an error or a note.

The cases are generated from the table in `meanings`, which has a row for each export format.
"""

import re

import hostile_sources
import meanings
import pytest
from export_options import NAMES, options_for
from fast_share import one_in

import rlds.feeds
import rlds.sources
from rlds import editing
from rlds.editing import Merge, Rename
from rlds.sources.rates import rate_in
from rlds_ecosystem.model.nests import leaves_at

FORMATS = sorted(meanings.STATED)
PAIRS = [(a, b) for a in FORMATS for b in FORMATS]
NOT_RAW = ("exported_", "logs_tar", "logs_zip", "folder_parquet")


def export_facts(format, folder, **facts):
    """Exports a dataset that states the facts; returns its path."""
    episodes = rlds.sources.Episodes(meanings.Telling(**facts), "train")
    path = folder / NAMES.get(format, "made")
    path.parent.mkdir(exist_ok=True)
    options = options_for(format, episodes)
    if "fps" in options:
        options["fps"] = rate_in(episodes.metadata)
    rlds.sources.export(episodes, format, path, **options)
    return path


def open_dataset(path):
    format = rlds.sources.format_of(path)
    return rlds.sources.open(path, **({"decode_images": False} if format == "tfds" else {}))


def test_the_tables_cover_all_formats():
    assert set(meanings.STATED) == set(rlds.sources.exports())
    assert set(meanings.RAW) == set(rlds.sources.formats())
    rows = [*meanings.STATED.values(), *map(set, meanings.RAW.values())]
    assert all(facts <= set(meanings.FACTS) for facts in rows)


@pytest.mark.parametrize("name", [n for n in hostile_sources.FORMATS if not n.startswith(NOT_RAW)])
def test_the_facts_of_raw_data_are_in_the_table(name, tmp_path):
    episodes = hostile_sources.open_raw(name, tmp_path)
    facts = {
        fact for _, it in leaves_at(episodes.spec, None) for fact in getattr(it, "meaning", ())
    }
    facts |= {"rate"} if rate_in(episodes.metadata) else set()
    facts |= {"license"} if episodes.source.source_info.license else set()
    assert facts <= set(meanings.RAW[episodes.format])


@pytest.mark.parametrize("format", FORMATS)
def test_facts_survive_an_export(format, tmp_path):
    expected = meanings.facts_of(rlds.sources.Episodes(meanings.Telling(), "train"))
    assert all(expected[fact] for fact in meanings.FACTS)
    assert meanings.facts_of(open_dataset(export_facts(format, tmp_path))) == expected


@pytest.mark.parametrize(("format", "other"), one_in(19, PAIRS))
def test_the_meaning_survives_any_two_formats(format, other, tmp_path):
    expected = meanings.facts_of(rlds.sources.Episodes(meanings.Telling(), "train"))
    episodes = open_dataset(export_facts(format, tmp_path / "one"))
    (tmp_path / "two").mkdir()
    path = tmp_path / "two" / NAMES.get(other, "made")
    rlds.sources.export(episodes, other, path, **options_for(other, episodes))
    assert meanings.facts_of(open_dataset(path)) == expected


@pytest.mark.parametrize("format", one_in(3, FORMATS))
def test_a_renamed_field_keeps_its_meaning(format, tmp_path):
    path = export_facts(format, tmp_path)
    before = meanings.facts_of(open_dataset(path))
    old, new = "observation/mode", "observation/state_of_mode"
    options = options_for(format, open_dataset(path))
    rlds.edit(path, Rename(old, new), target_options=options)
    after = meanings.facts_of(open_dataset(path))
    for fact in meanings.FACTS:
        expected = before[fact]
        if isinstance(expected, dict) and fact != "environment":
            expected = {path.replace(old, new): value for path, value in expected.items()}
        assert after[fact] == expected, fact


@pytest.mark.parametrize("format", one_in(8, FORMATS))
def test_datasets_of_different_meaning_are_not_merged_silently(format, tmp_path):
    """Each fact by itself: an error that names it, a note, or values that are kept."""
    path = export_facts(format, tmp_path / "one")
    messages = {
        "rate": "the frame rates differ",
        "table": "modes",
        "environment": "control_delta",
    }
    options = options_for(format, open_dataset(path))

    def merge(other):
        return editing.prepare_edit(path, [Merge([other])], target_options=options)

    for fact in meanings.FACTS:
        other = export_facts(
            format, tmp_path / fact, lengths=(5, 2), **{fact: meanings.OTHER_FACTS[fact]}
        )
        if fact == "task":  # The task is a value of the rows.
            view = merge(other).view
            tasks = [
                view.read(view.splits[0], i).steps["language_instruction"][0] for i in range(4)
            ]
            assert tasks == ["pick"] * 2 + ["place"] * 2
        elif fact == "license":
            assert "CC-BY-NC-4.0" in str(merge(other))
        else:
            with pytest.raises(ValueError, match=re.escape(messages.get(fact, fact))):
                merge(other)


@pytest.mark.parametrize("format", FORMATS)
def test_files_without_the_sidecar_never_state_another_meaning(format, tmp_path):
    """Without the sidecar, each fact is equal or missing."""
    expected = meanings.facts_of(rlds.sources.Episodes(meanings.Telling(), "train"))
    source = open_dataset(export_facts(format, tmp_path)).source
    while hasattr(source, "source"):  # Such sources merge rows and sidecar.
        source = source.source
    fields = dict(leaves_at(source.fields.steps, None)).values()
    for fact in ("unit", "names", "codes", "table", "kind"):
        actual = {stated for field in fields if (stated := getattr(field, fact, None))}
        assert (actual >= {*expected[fact].values()}) == (fact in meanings.STATED[format]), fact
        assert actual - {"tasks"} <= {*expected[fact].values()}, fact  # The texts of LeRobot's.


def test_feeds_of_several_datasets_compare_their_meaning(tmp_path):
    """If their meaning differs, a table of datasets is an error, and a mixture warns."""
    first = export_facts("tfds", tmp_path / "one")
    same = export_facts("tfds", tmp_path / "same", lengths=(5, 2))
    assert rlds.feeds.open([first, same]).num_steps == 5 + 4 + 6 + 3
    messages = {
        "unit": r"1 has .*in deg.* 0 has .*in rad",
        "kind": r"1 has .*delta.* 0 has .*absolute",
    }
    for fact, message in messages.items():
        other = export_facts("tfds", tmp_path / fact, **{fact: meanings.OTHER_FACTS[fact]})
        with pytest.raises(TypeError, match=message):
            rlds.feeds.open([first, other])
        feeds = [rlds.feeds.open(path).transitions() for path in (first, other)]
        with pytest.warns(UserWarning, match=f"the mixed datasets have different {fact}"):
            rlds.feeds.Mixture(feeds)
