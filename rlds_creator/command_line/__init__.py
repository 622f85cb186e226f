"""The commands of the web tool: a module for each, see `rlds_tools.command_line`."""
