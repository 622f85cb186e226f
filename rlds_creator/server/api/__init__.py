"""The HTTP API of the pages: a class of routes for each kind of resource."""
