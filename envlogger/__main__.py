"""`python -m envlogger recover DIRECTORY` is `rlds recover DIRECTORY`."""

from rlds_tools.command_line import main

if __name__ == "__main__":
    main()
