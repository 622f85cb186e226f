import contextlib
import importlib.util
import io
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from PIL import Image as Pillow
from PIL import PngImagePlugin

import tfds_files
from rlds.feeds import images
from rlds.feeds.images import ImageDecoder, ImageError
from rlds.sources import row_threads
from tfds_files.features import Image
from tfds_files.png import encode_png

MODULES = {"simplejpeg": "simplejpeg", "opencv": "cv2", "pillow": "PIL"}
INSTALLED = [name for name, module in MODULES.items() if importlib.util.find_spec(module)]
needs_simplejpeg = pytest.mark.skipif("simplejpeg" not in INSTALLED, reason="needs simplejpeg")


@pytest.fixture(autouse=True)
def _fresh_choice_of_libraries():
    forget_choice()
    yield
    forget_choice()


@pytest.fixture(params=INSTALLED)
def library(request, monkeypatch):
    """A library, with all better ones hidden."""
    for name in INSTALLED[: INSTALLED.index(request.param)]:
        monkeypatch.setitem(sys.modules, MODULES[name], None)
    return request.param


def forget_choice():
    for kind in (*images._FILE_KINDS[""], images._TF_JPEG):
        vars(kind).pop("decode", None)


def paint(channels=3, size=(37, 29), seed=0):
    noise = np.random.default_rng(seed).integers(0, 60, (*size, channels))
    ramp = np.add.outer(np.arange(size[0]) * 3, np.arange(size[1]) * 2)[..., np.newaxis]
    return ((ramp + noise) % 256).astype(np.uint8)


def encode(image, kind="JPEG", mode=None, **options):
    file = io.BytesIO()
    pillow_image = image if isinstance(image, Pillow.Image) else Pillow.fromarray(image.squeeze())
    (pillow_image.convert(mode) if mode else pillow_image).save(file, kind, **options)
    return file.getvalue()


def jpeg_files():
    exif = Pillow.Exif()
    exif[0x0112] = 6
    for size in ((1, 1), (2, 3), (8, 8), (17, 33), (37, 29)):
        for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
            yield encode(paint(size=size), subsampling=subsampling, quality=95)
            yield encode(paint(size=size), subsampling=subsampling, quality=20, progressive=True)
    yield encode(paint(), restart_marker_blocks=2)
    yield encode(paint(), keep_rgb=True)
    yield encode(paint(), exif=exif, comment="a longer segment" * 1000)
    yield encode(paint(1))
    yield encode(paint(1), progressive=True)


def png_files():
    exif = Pillow.Exif()
    exif[0x0112] = 6
    for size in ((1, 1), (2, 3), (37, 29)):
        for channels in (1, 3, 4):
            yield encode_png(paint(channels, size))
            yield encode_png(paint(channels, size) * np.uint16(257) + np.uint16(5))
    yield encode(paint(4), "PNG", optimize=True)
    yield encode(paint(), "PNG", exif=exif, icc_profile=b"none", dpi=(3, 3))
    yield encode(paint(), "PNG", transparency=(7, 7, 7))
    yield encode(paint(1), "PNG", transparency=7)
    yield encode(paint(), "PNG", mode="P")
    yield encode(paint(1), "PNG", mode="1")
    yield encode(paint(2), "PNG")
    with_gamma = PngImagePlugin.PngInfo()
    with_gamma.add(b"gAMA", (30_000).to_bytes(4))
    yield encode(paint(), "PNG", pnginfo=with_gamma)
    moving = [Pillow.fromarray(paint(seed=seed)) for seed in range(3)]
    yield encode(moving[0], "PNG", save_all=True, append_images=moving[1:])
    yield encode(moving[0], "PNG", save_all=True, append_images=moving[1:], default_image=True)


def damaged_files():
    yield from (b"", b"\xff\xd8", b"\xff\xd8\xff", b"no image", b"GIF89a" + bytes(60))
    coloured, grey, png = encode(paint()), encode(paint(1)), encode_png(paint())
    for complete in (coloured, encode(paint(), progressive=True), png):
        yield from (complete[: len(complete) * sevenths // 7] for sevenths in range(1, 7))
        yield complete[:-2]
        yield complete + b"more"
        yield complete[: len(complete) // 2] + complete[len(complete) // 2 + 9 :]
    yield encode(paint(), mode="CMYK")
    yield coloured[:-2] + bytes(20) + coloured[-2:]
    yield coloured[:2] + b"\xff" + coloured[2:]  # Fill bytes may precede a marker.
    frame = grey.index(b"\xff\xc0")
    for change in (b"\xff\xc3", b"\xff\xc9", b"\xff\xc0\x00\x0b\x0c", b"\xff\xe0\x00\x00"):
        yield grey[:frame] + change + grey[frame + len(change) :]
    yield from files_of_wrong_size()


def files_of_wrong_size():
    for size in (0, 1, 30, 60_000):
        jpeg, png = bytearray(encode(paint())), bytearray(encode_png(paint()))
        frame = jpeg.index(b"\xff\xc0")
        jpeg[frame + 5 : frame + 9] = size.to_bytes(2) * 2
        png[16:24] = size.to_bytes(4) * 2
        yield from (bytes(jpeg), bytes(png))


def feature(channels, dtype=np.uint8):
    return Image(shape=(None, None, channels), dtype=np.dtype(dtype))


def describe_error(error):
    """Returns the type and the message, without addresses and expected sizes."""
    return type(error), re.sub(r"0x[0-9a-f]+|(?<=expected )\(\w+, \w+", "", str(error))


def decode_plainly(file, feature):
    try:
        return tfds_files.decode_image(file, feature)
    except tfds_files.TfdsFilesError as e:
        return describe_error(e)


def decode_quickly(file, decoder):
    try:
        return decoder.decode([file])[0]
    except ImageError as e:
        return describe_error(e.__cause__)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_images_and_errors_equal_those_of_decode_image(library, dtype):
    channels = {np.float32: (1,)}.get(dtype, (1, 3, 4))
    files = [*jpeg_files(), *png_files(), *damaged_files(), encode(paint(), "BMP")]
    decoders = [ImageDecoder((None, None, count), dtype) for count in channels]
    num_images = 0
    for decoder, count in zip(decoders, channels):
        for file in files:
            expected = decode_plainly(file, feature(count, dtype))
            np.testing.assert_array_equal(decode_quickly(file, decoder), expected)
            num_images += isinstance(expected, np.ndarray)
    assert num_images > 5


def record_decoded_files(monkeypatch, library):
    """Returns a list that records the files a library decodes."""
    files = []
    if library == "simplejpeg":
        import simplejpeg as owner

        name = "decode_jpeg"
    elif library == "opencv":
        import cv2 as owner

        name = "imdecode"
    else:
        owner, name = tfds_files.images, "decode_image"

    real = getattr(owner, name)

    def decode(data, *args, **kwargs):
        files.append(bytes(data))
        return real(data, *args, **kwargs)

    monkeypatch.setattr(owner, name, decode)
    if library == "pillow":
        monkeypatch.setattr(tfds_files, name, decode, raising=False)
    return files


@pytest.mark.slow
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_each_file_is_decoded_once_into_its_row(library, threads, monkeypatch):
    files = [encode(paint(seed=row), quality=90) for row in range(50)]
    expected = np.stack([tfds_files.decode_image(file, feature(3)) for file in files])
    decoded_files = record_decoded_files(monkeypatch, library)
    decoder = ImageDecoder((37, 29, 3), np.uint8, "jpeg", threads=threads)
    np.testing.assert_array_equal(decoder.decode(files), expected)
    assert sorted(decoded_files) == sorted(files)
    for views in (list(map(memoryview, files)), [np.frombuffer(file, np.uint8) for file in files]):
        images_of_views = ImageDecoder((None, None, 3), np.uint8, threads=threads).decode(views)
        np.testing.assert_array_equal(images_of_views, expected)
    assert len(decoded_files) == 150


def collect_thread_names(decoder, files):
    """Returns the names of the decoding threads."""
    actual = set()
    decode = images.tfds_files.decode_image
    with pytest.MonkeyPatch.context() as patch:

        def decode_and_note(*arguments):
            actual.add(threading.current_thread().name.partition("_")[0])
            return decode(*arguments)

        patch.setattr(images.tfds_files, "decode_image", decode_and_note)
        patch.setattr(images, "_decode_fast", lambda *_: False)
        decoder.decode(files)
    return actual


def test_each_processor_decodes_unless_images_are_small(monkeypatch):
    large, small = (encode_png(np.zeros((size, 90, 3), np.uint8)) for size in (90, 9))
    decoders = [ImageDecoder((size, 90, 3), np.uint8, threads=None) for size in (90, 9)]
    own = threading.current_thread().name.partition("_")[0]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6), raising=False)
    assert collect_thread_names(decoders[0], [large] * 20) == {"rlds-images"}
    assert collect_thread_names(decoders[1], [small] * 20) == {own}
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")  # Four ranks share six processors.
    assert collect_thread_names(decoders[0], [large] * 20) == {own}
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    with multiprocessing.get_context("fork").Pool(1) as pool:  # Like workers of a loader.
        assert pool.apply(collect_thread_names, (decoders[0], [large] * 20)) == {own}


@pytest.mark.parametrize("threads", [0, 2])
def test_images_of_unequal_size_decode_to_an_array_of_arrays(library, threads):
    sizes = [(8, 8), (9, 8), (8, 8), (3, 5)]
    files = [encode(paint(size=size)) for size in sizes[:2]]
    files += [encode_png(paint(size=size)) for size in sizes[2:]]
    actual = ImageDecoder((None, None, 3), np.uint8, threads=threads).decode(files)
    assert actual.dtype == object
    assert [image.shape[:2] for image in actual] == sizes
    for image, file in zip(actual, files):
        np.testing.assert_array_equal(image, tfds_files.decode_image(file, feature(3)))
    with pytest.raises(
        ImageError, match=r"row 1: got an image of \(9, 8, 3\), expected \(8, None,"
    ):
        ImageDecoder((8, None, 3), np.uint8, threads=threads).decode(files)
    with pytest.raises(
        ImageError, match=r"row 0: got an image of \(8, 8, 3\), expected \(7, None,"
    ):
        ImageDecoder((7, None, 3), np.uint8, threads=threads).decode(files[:1])


@pytest.mark.slow
@pytest.mark.parametrize("threads", [0, 4])
def test_error_names_first_bad_row(library, threads):
    files = [encode(paint(seed=row)) for row in range(60)]
    for row in (59, 41, 23):
        files[row] = files[row][:300]
    files[24] = encode(paint(size=(29, 37)))
    decoder = ImageDecoder((37, 29, 3), np.uint8, threads=threads)
    for _ in range(5):
        with pytest.raises(ImageError, match="row 23: not a readable image") as caught:
            decoder.decode(files)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.row, error.problem, str(error)) == (23, caught.value.problem, str(caught.value))
    assert str(caught.value.__cause__) == error.problem
    with pytest.raises(
        ImageError, match=r"row 1: got an image of \(29, 37, 3\), expected \(37, 29"
    ):
        decoder.decode(files[22:25:2])


def test_false_image_sizes_reserve_no_memory(library):
    decoder = ImageDecoder((None, None, 3), np.uint8)
    tracemalloc.start()
    try:
        for file in files_of_wrong_size():
            with contextlib.suppress(ImageError):
                decoder.decode([file])
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_tensorflow_pixels_need_simplejpeg(monkeypatch):
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    with pytest.raises(ImportError, match=r"simplejpeg is needed .*rlds-ecosystem\[images\]"):
        ImageDecoder((2, 2, 3), np.uint8, jpeg="tf")


@needs_simplejpeg
def test_jpeg_pixels_equal_those_of_tensorflow():
    tf = pytest.importorskip("tensorflow")
    by_default, exact = (
        ImageDecoder((None, None, None), np.uint8, "jpeg", jpeg=jpeg) for jpeg in ("tf", "accurate")
    )
    grey = ImageDecoder((None, None, 1), np.uint8, "jpeg", jpeg="tf")
    num_different = 0
    for file in jpeg_files():
        image = by_default.decode([file])[0]
        np.testing.assert_array_equal(image, tf.io.decode_jpeg(file, channels=3).numpy())
        accurate = tf.io.decode_jpeg(file, channels=3, dct_method="INTEGER_ACCURATE").numpy()
        np.testing.assert_array_equal(exact.decode([file])[0], accurate)
        num_different += (image != accurate).any()
    assert num_different > 20
    file = encode(paint(1))
    np.testing.assert_array_equal(grey.decode([file])[0], tf.io.decode_jpeg(file).numpy())
    file = encode_png(paint())
    np.testing.assert_array_equal(by_default.decode([file])[0], paint())


def test_nothing_is_written_after_an_interrupt():
    begun, pause, interrupted = [], threading.Event(), threading.Event()

    def work(chunk):
        begun.append(chunk)
        if chunk.start == 0:
            pause.wait(0.2)  # By then, the main thread waits.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        assert interrupted.wait(600)
        pause.wait(0.2)

    def interrupt(*_):
        interrupted.set()
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            row_threads.for_all_rows(work, 1000, 2)
    finally:
        signal.signal(signal.SIGINT, handler)
    num_begun = len(begun)
    assert num_begun < 6
    pause.wait(0.3)
    assert len(begun) == num_begun
