from rlds.labels.labelled import labelled as labelled
from rlds.labels.labels import Labels as Labels
from rlds.labels.labels import open as open
from rlds.sources.label_rows import Label as Label
