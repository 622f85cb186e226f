"""The server: pages, the interface they call, and who may do what.

errors          what a request can do wrong, and what it is answered
security        which requests are let in; what browsers may do with the answers
connections     how many there may be, and how long they may take
running         a port, a process that answers there, and its end
bodies          what requests bring, and what they are answered, in JSON
pages           the files of the pages
viewing_routes  episodes and datasets, step by step
view_app        the server of `rlds view`

permissions     who may do what
requests        what all routes do with a request
api             what the pages call: a class for each thing that there is
messages        what a page says while somebody plays
page            the page of a player
plays           a person, an environment in a worker, and a page
workers         the processes in which environments live
directory       where recordings are
recordings      the logs of episodes, in step with the store
starters        studies to try
app             all of that, put together: the server of `rlds create`
"""
