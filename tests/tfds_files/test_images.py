import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image as Pillow

from tfds_files import DamagedFileError, Image, UnsupportedFileError, images
from tfds_files.png import decode_png, encode_png


def feature(channels, dtype=np.uint8):
    return Image(shape=(None, None, channels), dtype=np.dtype(dtype))


def picture(channels, dtype=np.uint8, size=(37, 29)):
    rng = np.random.default_rng(channels)
    ramp = np.add.outer(np.arange(size[0]) * 3, np.arange(size[1]) * 2)[..., np.newaxis]
    scale = 257 if dtype == np.uint16 else 1
    return ((ramp + rng.integers(0, 60, (*size, channels))) % 256 * scale).astype(dtype)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_png_files_are_read_as_tensorflow_reads_them(channels):
    file = tf.io.encode_png(picture(channels)).numpy()
    np.testing.assert_array_equal(images.decode_image(file, feature(channels)), picture(channels))
    for expected in {1: [3, 4], 3: [4], 4: [3]}[channels]:
        np.testing.assert_array_equal(
            images.decode_image(file, feature(expected)), tf.io.decode_png(file, expected).numpy()
        )


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_files_are_read_as_the_accurate_method_of_tensorflow_reads_them(channels):
    file = tf.io.encode_jpeg(picture(channels)).numpy()
    accurate = tf.io.decode_jpeg(file, dct_method="INTEGER_ACCURATE").numpy()
    np.testing.assert_array_equal(images.decode_image(file, feature(channels)), accurate)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_png_files_of_16_bits_are_decoded(channels):
    image = picture(channels, np.uint16)
    file = tf.io.encode_png(image).numpy()
    np.testing.assert_array_equal(images.decode_image(file, feature(channels, np.uint16)), image)
    np.testing.assert_array_equal(decode_png(file), image)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_encoded_png_files_are_read_by_tensorflow(channels, dtype):
    for size in ((37, 29), (1, 1), (1, 5), (4, 1)):
        ramp = picture(channels, dtype, size)
        noise = np.random.default_rng(1).integers(0, 250, ramp.shape).astype(dtype)
        for image in (ramp, noise, ramp[::-1, ::-1], np.zeros_like(ramp)):
            decoded = tf.io.decode_png(encode_png(image), channels, dtype).numpy()
            np.testing.assert_array_equal(decoded, image)
    smooth = np.add.outer(np.arange(200), np.arange(200))[..., np.newaxis].astype(dtype)
    assert len(encode_png(smooth)) < len(tf.io.encode_png(smooth).numpy()) * 2


@pytest.mark.parametrize(
    "image", [np.zeros((2, 2, 2), np.uint8), np.zeros((2, 0, 3), np.uint8), np.zeros((2, 2, 3))]
)
def test_arrays_that_no_png_file_can_hold_are_refused(image):
    with pytest.raises(ValueError, match="no PNG file has"):
        encode_png(image)


def as_png(image, mode=None, **options):
    file = io.BytesIO()
    Pillow.fromarray(image, mode).save(file, "PNG", **options)
    return file.getvalue()


def test_images_with_other_channels_are_refused_and_palettes_are_converted():
    colours = as_png(picture(3))
    with pytest.raises(UnsupportedFileError, match="the channels RGB, expected L"):
        images.decode_image(colours, feature(1))
    with pytest.raises(UnsupportedFileError, match="a PNG file of 8 bits, colour type 2"):
        images.decode_image(colours, feature(3, np.uint16))
    palette = io.BytesIO()
    Pillow.fromarray(picture(3)).quantize(7).save(palette, "PNG")
    np.testing.assert_array_equal(
        images.decode_image(palette.getvalue(), feature(3)),
        tf.io.decode_png(palette.getvalue(), 3).numpy(),
    )


def test_files_that_are_not_images_are_refused():
    file = tf.io.encode_png(picture(3, np.uint16)).numpy()
    for data in (b"", b"GIF89a", file[:200], file[:-30], file[:60] + b"x" + file[61:]):
        for expected in (feature(3), feature(3, np.uint16)):
            with pytest.raises(DamagedFileError):
                images.decode_image(data, expected)
    with pytest.raises(DamagedFileError, match=r"got an image of \(37, 29, 3\), expected \(37, 30"):
        images.decode_image(as_png(picture(3)), Image(shape=(37, 30, 3), dtype=np.dtype(np.uint8)))


@pytest.mark.slow
def test_a_small_file_of_a_huge_image_is_refused():
    bomb = as_png(np.zeros((8000, 16000), np.uint8))
    header = bytearray(bomb)
    header[16:24] = (60_000).to_bytes(4) + (60_000).to_bytes(4)
    with pytest.raises(DamagedFileError):
        images.decode_image(bytes(header), feature(1))
