"""Words that mean something to a shell, to YAML, or to Kubernetes, and must reach a program as they are."""

HOSTILE = (
    "a name with spaces",
    'it\'s "quoted"',
    "two\nlines",
    "$(touch owned)",
    "`touch owned`",
    "${HOME}; touch owned",
    "$$(NAME) $$ $",
    "*",
    "--",
    "",
    "\\",
    "%x %j",
    "no: yes # null",
    "entra\u00eenement \u8a13\u7df4",
)
