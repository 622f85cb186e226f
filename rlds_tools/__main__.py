"""`python -m rlds_tools` is the command `rlds`."""

from rlds_tools.command_line import main

if __name__ == "__main__":
    main()
