"""AgiBot World: episodes of a robot with two arms."""
