"""What this process takes, together with all that it has started: processor time and memory."""

import os
import resource
import time
from pathlib import Path


def family() -> list[int]:
    """The numbers of this process and of all that it has started, and they, and so on."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                status = Path("/proc", entry, "stat").read_text()
            except OSError:  # It has ended.
                continue
            parents[int(entry)] = int(status.rpartition(")")[2].split()[1])
    found = [os.getpid()]
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
    total = 0
    for process in family():
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{kind}:"):
                total += int(line.split()[1]) * 1024
    return total / 1e6
