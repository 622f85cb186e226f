from rlds_creator.environments.playable import Control as Control
from rlds_creator.environments.playable import Family as Family
from rlds_creator.environments.playable import Inputs as Inputs
from rlds_creator.environments.playable import Playable as Playable
from rlds_creator.exporting.exports import Download as Download
from rlds_creator.exporting.exports import export as export

__version__: str
