"""How fast demonstrations of robomimic become a dataset, beside the builder of TFDS.

    python benchmarks/bench_robomimic.py [--rounds N] [--demos DEMOS] [--length LENGTH] [--json]

The file has the arrays of `lift/ph/low_dim.hdf5`, in the sizes that the builder of TFDS demands,
and by default as many demonstrations as it has; they are as long as those of `square/ph`. In
rounds, `robomimic_ph` of TFDS and `rlds_robomimic` convert it. Ours reads back what it leaves, and
compares it; TFDS does not, so ours is measured without that, too. Ours also keeps what TFDS drops.
"""

import argparse
import functools
import shutil
import sys
import tempfile
from pathlib import Path

import rounds

SUPPORT = Path(__file__).parent.parent / "tests" / "support"
if str(SUPPORT) not in sys.path:
    sys.path.append(str(SUPPORT))


def by_tfds(raw: Path, data_dir: Path) -> None:
    """Converts with the builder of TFDS."""
    import raw_robomimic

    raw_robomimic.by_tfds(raw, data_dir)


def by_us(raw: Path, data_dir: Path, *, verify: bool = True) -> None:
    """Converts with ours."""
    import tfds_builders

    source = tfds_builders.RobomimicSource(raw)
    tfds_builders.convert(
        source, name="robomimic", data_dir=data_dir, progress=False, verify=verify
    )


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--demos", type=int, default=200)
    parser.add_argument("--length", type=int, default=150)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    import raw_robomimic

    with tempfile.TemporaryDirectory() as directory:
        raw, made = Path(directory) / "low_dim.hdf5", Path(directory) / "made"
        raw_robomimic.lift(raw, [arguments.length] * arguments.demos)

        def job(convert: object) -> None:
            shutil.rmtree(made, ignore_errors=True)
            convert(raw, made)  # type: ignore[operator]

        contenders = {
            "rlds_robomimic": lambda: job(by_us),
            "not read back": lambda: job(functools.partial(by_us, verify=False)),
            "TFDS": lambda: job(by_tfds),
        }
        times = rounds.take_turns(contenders, arguments.rounds)
    if arguments.json:
        rounds.report("robomimic", times)
        return
    medians = rounds.medians(times)
    steps = arguments.demos * (arguments.length + 1)
    for name, (cpu, wall) in medians.items():
        print(f"{name:16} {cpu:7.2f} s CPU {wall:7.2f} s elapsed {steps / cpu:9,.0f} steps/s")
    for name in ("rlds_robomimic", "not read back"):
        ratio = medians["TFDS"][0] / medians[name][0]
        print(f"TFDS takes {ratio:.1f} times as long as {name}")


if __name__ == "__main__":
    main()
