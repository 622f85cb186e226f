"""The server: pages, the interface they call, and who may do what.

errors          what a request can do wrong, and what it is answered
security        which requests are let in; what browsers may do with the answers
pages           the files of the pages
running         a port, a process that answers there, and its end
"""
