import io
import struct

import numpy as np
import pytest
import raw_rlu
import tensorflow as tf
from PIL import Image

from rlds.raw_files.image_files import black_jpeg, is_png, jpeg_shape, png_shape
from tfds_files.png import encode_png


def encode_jpeg(shape, **options):
    file = io.BytesIO()
    Image.fromarray(np.full(shape, 100, np.uint8)).save(file, format="JPEG", **options)
    return file.getvalue()


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3), (300, 2, 3)])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"comment": b"x" * 500}], ids=str)
def test_jpeg_shape_equals_shape_of_decoded_image(shape, options):
    assert jpeg_shape(encode_jpeg(shape, **options)) == shape


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 3)])
def test_black_jpeg_decodes_to_zeros(shape):
    image = np.asarray(Image.open(io.BytesIO(black_jpeg(shape))))
    assert image.shape == shape
    assert not image.any()


def test_incomplete_images_are_refused():
    image = encode_jpeg((5, 7))
    with pytest.raises(ValueError, match="begins with '89 50'"):
        jpeg_shape(b"\x89P")
    with pytest.raises(ValueError, match="cut off: it ends with"):
        jpeg_shape(image[:-5])
    with pytest.raises(ValueError, match="the header of its frame is missing"):
        jpeg_shape(image[:20] + image[-2:])


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_tensorflow_decodes_encoded_png(channels):
    image = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    data = encode_png(image)
    assert is_png(data)
    assert png_shape(data) == ((5, 7, channels), np.uint8)
    np.testing.assert_array_equal(tf.io.decode_png(data), image)


def test_png_shape_reads_headers_of_foreign_encoders():
    image = np.zeros((4, 6, 3), np.uint16)
    assert png_shape(tf.io.encode_png(image).numpy()) == ((4, 6, 3), np.uint16)
    assert png_shape(raw_rlu.png_of_type(3)) == ((3, 4, 3), np.uint8)  # With a palette.


@pytest.mark.parametrize(("width", "height"), [(2**31, 2**31), (0, 5), (5, 0)])
def test_implausible_png_sizes_are_refused(width, height):
    data = bytearray(encode_png(np.zeros((5, 7, 1), np.uint8)))
    data[16:24] = struct.pack(">II", width, height)
    with pytest.raises(ValueError, match=f"bytes with {width} x {height} pixels"):
        png_shape(bytes(data))


def test_foreign_files_and_unsupported_colour_types_are_refused():
    for data in (b"", b"GIF89a", b"\x89PNG\r\n\x1a\n"):
        with pytest.raises(ValueError, match="not a PNG file"):
            png_shape(data)
    with pytest.raises(ValueError, match="colour type 4, expected grey, RGB or RGBA"):
        png_shape(raw_rlu.png_of_type(4))
