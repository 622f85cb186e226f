"""A program that exports on Apache Beam, and can kill one or all of its processes.

python tests/support/beam_exports.py DaskRunner robomimic RAW TARGET NOTES worker
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

from many_episodes import ManyEpisodes

OPTIONS = {"lerobot": {"fps": 10, "codec": "h264"}}
_KILLED_AT = 40


class Watched(ManyEpisodes):
    """Notes the processes that read; kills one or all of them once, halfway."""

    def __init__(self, path, *, notes, kill):
        super().__init__(path)
        self.notes, self.kill = Path(notes), kill

    def read(self, split, index, fields=None, rows=slice(None)):
        if fields is None and index:
            (self.notes / str(os.getpid())).touch()
            if index == _KILLED_AT and self.kill:
                with contextlib.suppress(FileExistsError):
                    (self.notes / "killed").mkdir()
                    os.kill(0 if self.kill == "all" else os.getpid(), signal.SIGKILL)
        return super().read(split, index, fields, rows)


def main(runner, format, raw, target, notes, kill):
    import beam_exports

    import rlds.sources

    source = beam_exports.Watched(raw, notes=notes, kill=kill)
    options = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    with contextlib.ExitStack() as stack:
        if runner == "DaskRunner":
            from distributed import LocalCluster

            cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
            options = [f"--dask_client_address={stack.enter_context(cluster).scheduler_address}"]
        rlds.sources.export(
            source,
            format,
            target,
            beam_runner=runner,
            beam_options=options,
            **OPTIONS.get(format, {}),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
