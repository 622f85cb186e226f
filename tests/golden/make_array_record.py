"""Makes the golden files, with the published array_record 0.8.6 (which has Google's C++ Riegeli).

    python make_array_record.py DIRECTORY

The files in `array_record_0_8_6/` are its output and never change: this project must always read
them. Each holds the records of `array_records.py`; an array_record file is a Riegeli file
whose last records are an index.
"""

import pathlib
import sys

import array_records
from array_record.python.array_record_module import ArrayRecordWriter

FILES = {
    "uncompressed": "uncompressed,group_size:7",
    "uncompressed_one_by_one": "uncompressed,group_size:1",
    "zstd": "zstd:3,group_size:100",
    "zstd_window": "zstd:19,window_log:31,group_size:1000",
    "brotli": "brotli:6,group_size:100",
    "brotli_large_window": "brotli:3,window_log:30,group_size:1000",
    "snappy": "snappy,group_size:100",
    "padded": "zstd:1,group_size:200,pad_to_block_boundary:true",
    "transposed": "transpose,uncompressed,group_size:1000",
    "transposed_few": "transpose,uncompressed,group_size:3",
    "transposed_zstd": "transpose,zstd:3,group_size:100,transpose_bucket_size:1M",
    "transposed_zstd_buckets": "transpose,zstd:3,group_size:1000",
    "transposed_brotli": "transpose,brotli:6,group_size:300,transpose_bucket_size:4K",
    "transposed_snappy": "transpose,snappy,group_size:300",
}


def write(path: pathlib.Path, options: str, records: list[bytes]) -> None:
    writer = ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()


if __name__ == "__main__":
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, options in FILES.items():
        write(directory / f"{name}.array_record", options, array_records.RECORDS)
    write(directory / "empty.array_record", "uncompressed", [])
