"""`python -m tfds_builders DATASET PATH`: `rlds convert` with a builder of this package.

python -m tfds_builders rlds_d4rl/hopper-medium-v2 hopper_medium-v2.hdf5 --data_dir data
"""

from rlds_tools.command_line.commands import main
from rlds_tools.command_line.convert import build

if __name__ == "__main__":
    main(command=build)
