"""Recordings of robots: MCAP files, bags of ROS 1 and ROS 2."""
