"""Data for the pages that show episodes step by step, without a server.

values          values as JSON for browsers
pictures        detection of picture fields, and image files for browsers
thumbnails      a disk cache of thumbnails
steps           the steps of an episode: of a log (`log_steps`), of any source (`source_steps`)
episode_view    an episode: its summary, steps, pictures and curves
episode_columns columns of the table of episodes
labels          the labels of an episode
catalog         the datasets of `rlds view`
"""

from rlds_creator.viewing.catalog import Catalog
from rlds_creator.viewing.episode_view import ViewedEpisode

__all__ = ["Catalog", "ViewedEpisode"]
