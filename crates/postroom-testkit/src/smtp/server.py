"""An SMTP server that keeps what it gets, and answers as addresses and subjects ask.

`refuse-550@…` is answered with 550, `refuse-554-5.7.1@…` with that finer code, `later-451@…` with
451 the first time, both as a sender and as a recipient; a mail with the subject `refuse 554` is
answered with 554. Mails are kept in a folder for the domain of their first recipient.
"""

import argparse
import asyncio
import json
import pathlib
import re
import ssl

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

SIZE_MAX = 200_000


class Handler:
    def __init__(self, mails):
        self.mails = mails
        self.seen = set()
        self.count = 0

    def answer(self, address):
        asked = re.match(r"(refuse|later)-(\d{3})(?:-(\d\.\d\.\d))?", address)
        if asked is None:
            return "250 2.0.0 OK"
        if asked[1] == "later":
            if address in self.seen:
                return "250 2.0.0 OK"
            self.seen.add(address)
        finer = asked[3] or f"{asked[2][0]}.1.1"
        return f"{asked[2]} {finer} <{address}> as you wish"

    async def handle_MAIL(self, server, session, envelope, address, options):
        answer = self.answer(address)
        if answer.startswith("250"):
            envelope.mail_from = address
        return answer

    async def handle_RCPT(self, server, session, envelope, address, options):
        answer = self.answer(address)
        if answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server, session, envelope):
        asked = re.search(rb"^Subject: refuse (\d{3})", envelope.content, re.MULTILINE)
        if asked is not None:
            return asked[1].decode() + " as you wish"
        folder = self.mails / envelope.rcpt_tos[0].rpartition("@")[2]
        folder.mkdir(exist_ok=True)
        self.count += 1
        name = f"{self.count:06}"
        (folder / f"{name}.to").write_text(json.dumps(envelope.rcpt_tos))
        # Renamed once it is whole, so that no reader sees half of it.
        (folder / name).write_bytes(envelope.content)
        (folder / name).rename(folder / f"{name}.eml")
        return "250 2.0.0 OK"


def authenticate(server, session, envelope, mechanism, login):
    known = isinstance(login, LoginPassword) and (login.login, login.password) == (b"relay", b"hunter2")
    return AuthResult(success=known, handled=False)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--mails", type=pathlib.Path, required=True)
    parser.add_argument("--tls", choices=["none", "starttls", "tls"], default="none")
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    parser.add_argument("--login", action="store_true")
    asked = parser.parse_args()
    asked.mails.mkdir(exist_ok=True)
    handler = Handler(asked.mails)
    context = None
    if asked.tls != "none":
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(asked.certificate, asked.key)

    def session():
        return SMTP(
            handler,
            data_size_limit=SIZE_MAX,
            enable_SMTPUTF8=True,
            hostname="mail.test",
            tls_context=context if asked.tls == "starttls" else None,
            require_starttls=asked.tls == "starttls",
            auth_required=asked.login,
            auth_require_tls=asked.tls == "starttls",
            authenticator=authenticate if asked.login else None,
        )

    loop = asyncio.get_running_loop()
    implicit = context if asked.tls == "tls" else None
    server = await loop.create_server(session, "127.0.0.1", asked.port, ssl=implicit)
    await server.serve_forever()


asyncio.run(main())
