from envlogger.backends.python.episode_info import EpisodeInfo
from envlogger.converters import codec


def test_defaults():
    info = EpisodeInfo()
    assert (info.start, info.num_steps, info.metadata) == (0, 0, None)


def test_keeps_what_it_is_given():
    info = EpisodeInfo(start=3, num_steps=7, metadata=codec.encode("sunny"))
    assert (info.start, info.num_steps, codec.decode(info.metadata)) == (3, 7, "sunny")
