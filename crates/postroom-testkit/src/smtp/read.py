"""Reads the mails of a folder with Python's own parser, and prints them as JSON."""

import email
import email.policy
import json
import pathlib
import sys

mails = []
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.eml")):
    mail = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    assert not mail.defects, mail.defects
    content = lambda part: None if part is None else part.get_content()
    mails.append(
        {
            "recipients": json.loads(path.with_suffix(".to").read_text()),
            "headers": {name.lower(): str(value) for name, value in mail.items()},
            "text": content(mail.get_body(("plain",))),
            "html": content(mail.get_body(("html",))),
        }
    )
json.dump(mails, sys.stdout)
