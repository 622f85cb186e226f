"""Random records and writer options, for files that this and other projects exchange.

They depend only on the seed of the `random.Random`, so that a failing case can be repeated.
"""

import re

from riegeli.varints import encode_varints


def varint(value):
    return encode_varints((value,))


def tag(field_id, wire_type):
    return varint(field_id << 3 | wire_type)


def number_up_to(rng, limit):
    """Draws a number whose size in bits is uniform."""
    return rng.randrange(1 << rng.randrange(1, limit.bit_length() + 1)) % (limit + 1)


def message(rng, field_ids, depth):
    """A canonical proto message with fields of some of `field_ids`, nested up to `depth`."""
    fields = []
    for field_id in rng.choices(field_ids, k=number_up_to(rng, 8)):
        kind = rng.choice("vvv18bbbsg" if depth else "vvv18bbb")
        if kind == "v":
            fields += tag(field_id, 0), varint(number_up_to(rng, 2**64 - 1))
        elif kind == "1":
            fields += tag(field_id, 1), rng.randbytes(8)
        elif kind == "8":
            fields += tag(field_id, 5), rng.randbytes(4)
        elif kind == "g":
            fields += tag(field_id, 3), message(rng, field_ids, depth - 1), tag(field_id, 4)
        else:
            inner = content(rng) if kind == "b" else message(rng, field_ids, depth - 1)
            fields += tag(field_id, 2), varint(len(inner)), inner
    return b"".join(fields)


def content(rng):
    """Bytes: text, noise or repetitions, mostly short."""
    size = number_up_to(rng, rng.choice([20, 20, 20, 1000]))
    pattern = rng.choice(["text", "noise", "repeated"])
    if pattern == "text":
        return "".join(rng.choices("etaoin äß漢", k=size)).encode()
    if pattern == "noise":
        return rng.randbytes(size)
    return rng.randbytes(1) * size


def records(rng, max_count=400):
    """Records of a file: proto messages of a few types, and a share of arbitrary bytes."""
    types = []
    for _ in range(rng.randint(1, 3)):
        field_ids = [1 + number_up_to(rng, 2**29 - 2) for _ in range(rng.choice([3, 10, 300]))]
        types.append((field_ids, rng.choice([0, 1, 3, 3, 20])))
    share_of_bytes = rng.choice([0, 0, 0.1, 1])
    result = []
    for _ in range(number_up_to(rng, max_count)):
        if rng.random() < share_of_bytes:
            result.append(content(rng))
        else:
            field_ids, depth = rng.choice(types)
            result.append(message(rng, field_ids, depth))
    if rng.random() < 0.1:  # Spans several blocks.
        result.insert(rng.randint(0, len(result)), rng.randbytes(rng.randint(60_000, 300_000)))
    if rng.random() < 0.1:  # More records than bytes.
        result += [b""] * rng.randint(1, 3000)
    if result and rng.random() < 0.1:  # The same type of message, over and over.
        result += [rng.choice(result) for _ in range(1000)]
    return result


def _mixed(rng, *options):
    """Joins the options in any order, without those that are None."""
    chosen = [option for option in options if option]
    rng.shuffle(chosen)
    if rng.random() < 0.05:
        chosen.insert(0, "default")
    if rng.random() < 0.05:
        chosen.insert(rng.randint(0, len(chosen)), "")
    return ",".join(chosen)


def _sometimes(rng, *texts, share=0.5):
    return rng.choice(texts) if rng.random() < share else None


def compression(rng, brotli_windows):
    """Options for an algorithm, its level and its window."""
    algorithm = rng.choice(["uncompressed", "snappy", "zstd", "zstd", "brotli", "brotli", None])
    window_log = None
    if algorithm == "zstd":
        level = rng.choice(["", ":0", f":{rng.randint(-20, 12)}", ":+2", ": 5"])
        algorithm += level
        window_log = _sometimes(rng, "window_log:auto", f"window_log:{rng.randint(10, 22)}")
    elif algorithm != "uncompressed" and algorithm != "snappy":
        window_log = _sometimes(
            rng, "window_log:auto", f"window_log:{rng.randint(*brotli_windows)}", share=0.3
        )
        if algorithm:
            algorithm += rng.choice(["", "", f":{rng.randint(0, 9)}"])
    return algorithm, window_log


def brotli_window(options):
    """Returns the `window_log` of options for brotli, or 0."""
    window_log = re.search(r"window_log:(\d+)", options)
    if window_log is None or "zstd" in options:
        return 0
    return int(window_log[1])


def kind_of(options):
    """Returns the kind of the chunks for options."""
    algorithms = ("uncompressed", "snappy", "zstd")
    algorithm = next((name for name in algorithms if name in options), "brotli")
    transposed = "transpose" in options and "transpose:false" not in options
    return f"{'transposed' if transposed else 'simple'}, {algorithm}"


def riegeli_options(rng, *, newest, brotli_windows=(10, 24), chunk_size=None):
    """A text of writer options.

    Args:
      rng: The source of randomness.
      newest: Whether all options of Google's current grammar may occur, or only those that the
        Riegeli in envlogger 1.2 knows.
      brotli_windows: The smallest and the largest one.
      chunk_size: The option; drawn by default.
    """
    algorithm, window_log = compression(rng, brotli_windows)
    if newest and algorithm == "snappy":
        algorithm = rng.choice(["snappy", "snappy:1", "snappy:2"])
    if newest:
        kind = rng.choice(["initial_padding", "final_padding", "padding"])
        size = rng.choice(["", ":1", ":64", ":100", ":1K", ":4096", ":64K", ":128K"])
        padding = _sometimes(rng, kind + size, share=0.3)
    else:
        padding = _sometimes(
            rng,
            *[f"pad_to_block_boundary{value}" for value in ("", ":true", ":false")],
            share=0.2,
        )
    return _mixed(
        rng,
        _sometimes(rng, "transpose", "transpose:true", "transpose:false", share=0.8),
        algorithm,
        window_log,
        chunk_size
        or _sometimes(
            rng,
            "chunk_size:auto",
            f"chunk_size:{rng.randint(1, 3000)}",
            f"chunk_size:{rng.randint(1, 99)}K",
            "chunk_size:1.5k",
            "chunk_size:1e4",
            "chunk_size:2M",
        ),
        _sometimes(
            rng, "bucket_fraction:0", "bucket_fraction:1", f"bucket_fraction:{rng.random()}"
        ),
        _sometimes(rng, f"parallelism:{rng.randint(0, 4)}", share=0.3),
        _sometimes(rng, "brotli_encoder:rbrotli_or_cbrotli", share=0.1) if newest else None,
        padding,
    )


def array_record_options(rng):
    """Options for the writer of array_record, and similar ones for this project.

    Returns:
      Both texts, and the number of records of a chunk.
    """
    algorithm, window_log = compression(rng, (10, 30))
    group_size = rng.choice([1, 2, 10, rng.randint(1, 200), 10_000])
    transpose = _sometimes(rng, "transpose", "transpose:true", "transpose:false", share=0.8)
    bucket = rng.choice([256, 1, 64, 4096, 1 << 20])
    padded = _sometimes(rng, "pad_to_block_boundary:true", share=0.1)
    their_options = _mixed(
        rng,
        algorithm,
        window_log,
        transpose,
        f"group_size:{group_size}",
        f"transpose_bucket_size:{bucket}",
        padded,
    )
    if algorithm is None:
        algorithm = "zstd"  # The default of array_record, with that window.
    if algorithm.startswith("zstd") and window_log in (None, "window_log:auto"):
        window_log = "window_log:20"
    chunk_size = 1 << 30  # Groups are flushed before that.
    own_options = [
        algorithm,
        window_log,
        transpose,
        padded and "padding:64K",
        f"chunk_size:{chunk_size},bucket_fraction:{bucket / chunk_size}",
    ]
    return their_options, ",".join(filter(None, own_options)), group_size
