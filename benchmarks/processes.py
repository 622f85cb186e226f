"""What this process takes, together with all that it has started: processor time and memory."""

import os
import resource
import time
from pathlib import Path


def family(process: int | None = None) -> list[int]:
    """The numbers of a process, this one by default, of all that it has started, and so on."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                status = Path("/proc", entry, "stat").read_text()
            except OSError:  # It has ended.
                continue
            parents[int(entry)] = int(status.rpartition(")")[2].split()[1])
    found = [os.getpid() if process is None else process]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def cpu_time() -> float:
    """The processor time of these processes so far, in seconds."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = time.process_time() + ended.ru_utime + ended.ru_stime
    for process in family()[1:]:
        try:
            result += time.clock_gettime((~process << 3) | 2)  # What clock_getcpuclockid returns.
        except OSError:
            continue
    return result


def memory(kind: str = "Pss") -> float:
    """The megabytes of these processes; with `Pss_Anon`, only what is in no file."""
    return sum(memory_of(process, kind) for process in family())


def memory_of(process: int, kind: str = "Pss") -> float:
    """The megabytes of a process."""
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def cpu_time_of(process: int) -> float:
    """The processor time of a process of its own, without what it has started, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
