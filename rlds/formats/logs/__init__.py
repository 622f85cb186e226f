"""EnvLogger logs."""
