"""Episodes of any data, step by step, as the pages show them; no server in it.

values          values as JSON that every browser reads
pictures        which fields are pictures, and files that browsers show
episode_view    an episode: its outline, steps, pictures and curves
steps           the steps of an episode: of a log (`log_steps`), of any source (`source_steps`)
shelf           the datasets that `rlds view` was given
"""

from rlds_creator.viewing.episode_view import ViewedEpisode
from rlds_creator.viewing.shelf import Shelf

__all__ = ["Shelf", "ViewedEpisode"]
