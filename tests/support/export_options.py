"""The options of exports for any episodes."""

import rlds
from rlds.sources.writing import is_array
from rlds_ecosystem.model.nests import leaves_at, root_of

# Names that a format requires; other formats take any name.
NAMES = {
    "minari": "made-v0",
    **dict.fromkeys(("robomimic", "d3rlpy", "d4rl"), "made.h5"),
}


def options_for(format, episodes):
    """The options of the format for these episodes."""
    fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
    standard_names = (*rlds.STEP_FLAGS, rlds.REWARD, rlds.DISCOUNT)
    arrays = [
        path for path, field in fields.items() if is_array(field) and path not in standard_names
    ]
    images = [path for path, field in fields.items() if getattr(field, "encoding", "")]

    def first(name, paths):
        own_paths = [path for path in paths if root_of(path) == name]
        extra_paths = [
            path for path in paths if root_of(path) not in (rlds.OBSERVATION, rlds.ACTION)
        ]
        return [*own_paths, *extra_paths, name][0]

    observation, action = first(rlds.OBSERVATION, arrays), first(rlds.ACTION, arrays)
    chosen = {"observation": observation, "action": action}
    observed = first(rlds.OBSERVATION, [*arrays, *images])
    if format in episodes.metadata and format != "d4rl":  # Its metadata holds the options.
        return {}
    return {
        **dict.fromkeys(("d3rlpy", "d4rl"), chosen),
        "aloha": {"fields": {"observations/qpos": observed, "action": action}},
        "minari": {"unknown_final_observation": "drop_last_transition"},
        "lerobot": {
            "fps": 10.0,
            "to_sidecar": [path for path, it in fields.items() if None in getattr(it, "shape", ())],
        },
    }.get(format, {})
