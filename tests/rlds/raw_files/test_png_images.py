import struct

import numpy as np
import pytest
import raw_rlu
import tensorflow as tf

from rlds.raw_files.png_images import is_png, png_shape
from tfds_files.png import encode_png


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_other_decoders_read_what_is_encoded(channels):
    image = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    data = encode_png(image)
    assert is_png(data)
    assert png_shape(data) == ((5, 7, channels), np.uint8)
    np.testing.assert_array_equal(tf.io.decode_png(data), image)


def test_reads_the_headers_of_other_encoders():
    image = np.zeros((4, 6, 3), np.uint16)
    assert png_shape(tf.io.encode_png(image).numpy()) == ((4, 6, 3), np.uint16)
    assert png_shape(raw_rlu.png_of_type(3)) == ((3, 4, 3), np.uint8)  # With a palette.


@pytest.mark.parametrize(("width", "height"), [(2**31, 2**31), (0, 5), (5, 0)])
def test_sizes_that_no_data_can_stand_for_are_refused(width, height):
    data = bytearray(encode_png(np.zeros((5, 7, 1), np.uint8)))
    data[16:24] = struct.pack(">II", width, height)
    with pytest.raises(ValueError, match=f"bytes with {width} x {height} pixels"):
        png_shape(bytes(data))


def test_what_is_refused():
    for data in (b"", b"GIF89a", b"\x89PNG\r\n\x1a\n"):
        with pytest.raises(ValueError, match="not a PNG file"):
            png_shape(data)
    with pytest.raises(ValueError, match="colour type 4, expected grey, RGB or RGBA"):
        png_shape(raw_rlu.png_of_type(4))
