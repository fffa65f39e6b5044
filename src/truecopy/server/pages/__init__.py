"""The pages: what the API tells and does, for people. Drawn by the server, and live where scripts run."""

from truecopy.server.pages import (
    admin,
    certificates,
    cutover,
    differences,
    errors,
    keys,
    overview,
    runs,
    signing,
    static_files,
    suites,
    task,
)

ROUTERS = tuple(
    page.router
    for page in (
        static_files,
        signing,
        overview,
        task,
        keys,
        differences,
        errors,
        cutover,
        runs,
        suites,
        certificates,
        admin,
    )
)
