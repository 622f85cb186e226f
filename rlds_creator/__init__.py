"""People play environments in the browser, and their episodes become a dataset.

    rlds create recordings     serves the pages on which people play, replay, tag and download
    rlds view data/walker2d    serves the page that replays episodes, of data in any format

Each of these packages imports only the packages above it:

    model           records: studies, environments, people, episodes, tags
    recorded        names of recorded fields
    environments    supported environments, and the key maps that select actions
    worker          the process of a player: steps, renders and records an environment
    viewing         episodes of recordings and datasets, step by step
    exporting       downloads: recordings and their tags as a log, a dataset, or another format
    store           studies, people, episodes and tags in a database
    server          pages, the HTTP interface that they call, and permissions
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
