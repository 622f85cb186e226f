import io

import numpy as np
import pytest
from PIL import Image

from rlds.raw_files.jpeg_images import black_jpeg, jpeg_shape


def encoded(shape, **options):
    file = io.BytesIO()
    Image.fromarray(np.full(shape, 100, np.uint8)).save(file, format="JPEG", **options)
    return file.getvalue()


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3), (300, 2, 3)])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"comment": b"x" * 500}], ids=str)
def test_the_shape_is_that_of_the_decoded_image(shape, options):
    assert jpeg_shape(encoded(shape, **options)) == shape


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 3)])
def test_a_black_image_is_black(shape):
    image = np.asarray(Image.open(io.BytesIO(black_jpeg(shape))))
    assert image.shape == shape
    assert not image.any()


def test_what_is_no_whole_image_is_refused():
    image = encoded((5, 7))
    with pytest.raises(ValueError, match="begins with '89 50'"):
        jpeg_shape(b"\x89P")
    with pytest.raises(ValueError, match="cut off: it ends with"):
        jpeg_shape(image[:-5])
    with pytest.raises(ValueError, match="the header of its frame is missing"):
        jpeg_shape(image[:20] + image[-2:])
