"""The server: pages, the HTTP interface that they call, and permissions.

errors          error responses
security        checks of requests, and security headers of responses
connections     limits of connections
limits          rate limits
running         the server process and its port
bodies          JSON bodies of requests and responses
pages           the files of the pages
viewing_routes  routes of episodes and datasets, step by step
view_app        the application of `rlds view`

permissions     permissions of roles
requests        authentication of requests
api             routes of studies, episodes, people, plays and downloads
messages        messages of a page during play
page            the connection to the page of a player
plays           running plays: a person, an environment in a worker, and a page
workers         processes of environments
directory       the data directory
recordings      logs of episodes, kept in step with the store
recorded_labels labels of recorded episodes
sample_studies  example studies of a new server
app             the application of `rlds create`
"""
