"""Settings that all tests share."""

import signal

from hypothesis import settings

# The machines that run this are shared: how long an example takes says nothing.
settings.register_profile("default", deadline=None, max_examples=50, print_blob=True)
settings.load_profile("default")

# In the background of a shell it is ignored, and processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
