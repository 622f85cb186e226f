"""Records two cameras without end, to be killed: `killed_cameras.py log|lerobot|streams FOLDER`.

Each row and each frame holds its index, see `killed_lerobot`. The index of an episode is printed
once it must survive.
"""

import sys
import time

import dm_env
import numpy as np
from dm_env import specs
from killed_lerobot import NUM_FRAMES, SHAPE, frame_of, state_of

import envlogger
from rlds.recording import LeRobotBackendWriter

_CAMERAS = ("top", "wrist")
_VIDEO = envlogger.Video(fps=50, gop=5)
NUM_EPISODES = 120  # The limit of the numbers in frames.
_SECONDS = 0.005
# Episodes until data must be in the file: a log has its flush interval, streams have 0.05 s.
_LATE = 5


class Robot(dm_env.Environment):
    def __init__(self):
        self.episode = -1

    def observation_spec(self):
        cameras = dict.fromkeys(_CAMERAS, specs.Array(SHAPE, np.uint8))
        return {"images": cameras, "state": specs.Array((3,), np.float32)}

    def action_spec(self):
        return specs.Array((3,), np.float32)

    def _observation(self):
        frames = {name: frame_of(n, self.episode, self.row) for n, name in enumerate(_CAMERAS)}
        return {"images": frames, "state": state_of(self.episode, self.row)}

    def reset(self):
        self.episode, self.row = self.episode + 1, 0
        return dm_env.restart(self._observation())

    def step(self, action):
        self.row += 1
        make = dm_env.termination if self.row == NUM_FRAMES else dm_env.transition
        return make(1.0, self._observation())


def record(path, late, **arguments):
    video = {f"images/{name}": _VIDEO for name in _CAMERAS}
    with envlogger.EnvLogger(Robot(), data_directory=path, video=video, **arguments) as env:
        for episode in range(NUM_EPISODES):
            timestep = env.reset()
            while not timestep.last():
                time.sleep(_SECONDS)
                timestep = env.step(-timestep.observation["state"])
            if episode >= late:
                print(episode - late, flush=True)


def record_streams(path):
    with envlogger.StreamRecorder(path, video=dict.fromkeys(_CAMERAS, _VIDEO)) as recorder:
        for episode in range(NUM_EPISODES):
            with recorder.episode():
                for row in range(NUM_FRAMES):
                    time_ns = time.time_ns()
                    for camera, name in enumerate(_CAMERAS):
                        recorder.push(name, time_ns, frame_of(camera, episode, row))
                    recorder.push("state", time_ns, state_of(episode, row))
                    recorder.push("action", time_ns, -state_of(episode, row))
                    time.sleep(_SECONDS)
            if episode >= _LATE:
                print(episode - _LATE, flush=True)


def main(kind, path):
    if kind == "streams":
        record_streams(path)
    elif kind == "lerobot":
        record(path, 0, backend=LeRobotBackendWriter, fps=50)
    else:
        record(path, _LATE, flush_interval=0.1)
    time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
