"""The names of the Atari games with datasets."""

__all__ = ["DQN_REPLAY_GAMES", "RLU_GAMES"]

RLU_GAMES = (
    *("Alien", "Amidar", "Assault", "Asterix", "Atlantis", "BankHeist", "BattleZone", "BeamRider"),
    *("Boxing", "Breakout", "Carnival", "Centipede", "ChopperCommand", "CrazyClimber"),
    *("DemonAttack", "DoubleDunk", "Enduro", "FishingDerby", "Freeway", "Frostbite", "Gopher"),
    *("Gravitar", "Hero", "IceHockey", "Jamesbond", "Kangaroo", "Krull", "KungFuMaster"),
    *("MsPacman", "NameThisGame", "Phoenix", "Pong", "Pooyan", "Qbert", "Riverraid", "RoadRunner"),
    *("Robotank", "Seaquest", "SpaceInvaders", "StarGunner", "TimePilot", "UpNDown"),
    *("VideoPinball", "WizardOfWor", "YarsRevenge", "Zaxxon"),
)

DQN_REPLAY_GAMES = tuple(
    sorted(
        (
            *RLU_GAMES,
            *("AirRaid", "Asteroids", "Berzerk", "Bowling", "ElevatorAction", "JourneyEscape"),
            *("MontezumaRevenge", "Pitfall", "PrivateEye", "Skiing", "Solaris", "Tennis"),
            *("Tutankham", "Venture"),
        )
    )
)
