"""Settings that all tests share."""

from hypothesis import settings

# The machines that run this are shared: how long an example takes says nothing.
settings.register_profile("default", deadline=None, max_examples=50, print_blob=True)
settings.load_profile("default")
