"""The meaning of data, told from the data itself.

    for meaning in rlds.auditing.vector_meanings(rlds.sources.open("my_robot")):
        print(", ".join(meaning.sentences()))

If the values leave doubt, the meaning is *unknown*; nothing is guessed.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
