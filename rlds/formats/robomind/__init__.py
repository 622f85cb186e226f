"""RoboMIND: a folder for each embodiment, task and episode."""
