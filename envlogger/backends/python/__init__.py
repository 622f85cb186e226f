"""Classes that are compiled extensions in other builds of EnvLogger, under the same names."""
