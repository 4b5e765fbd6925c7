"""A body has the form that each request wants, even if it is shared."""

import os
import stat

from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import eventually

MIB = 1 << 20


class FormTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1))
        self.client = self.bus.client(window=64)

    def check(self, message, content, *, is_file):
        """Asserts that the result has only this form."""
        self.assertEqual(message.verb, "RESULT", message)
        self.assertEqual("file" in message.fields, is_file, message)
        if is_file:
            self.assertIsNone(message.inline, "there is no second frame")
        self.assertTrue(message.content() == content, message)

    def test_who_share_a_fetch_get_it_each_in_the_form_asked_for(self):
        url = f"{self.origin.url}/gate/shared?bytes=1000"
        holder = self.bus.client(window=1)
        holder.hold()
        forms = ("auto", "inline", "file")
        for form in forms:
            self.client.fetch(form, 1, url, deliver=form)
        holder.fetch("holder", 1, url, deliver="file")
        self.await_requests(self.client, pending=4)
        self.origin.open_gate("shared")
        for message in self.client.terminals(3):
            self.check(message, body(1000), is_file=message.id[0] == "file")
        held = holder.terminal()
        self.check(held, body(1000), is_file=True)
        self.client.query("ping")
        # Others have acknowledged theirs, which is the same file.
        self.assertEqual(stat.S_IMODE(os.stat(held.fields["file"]).st_mode), 0o400)
        holder.release()
        eventually(lambda: not os.path.exists(held.fields["file"]), "it goes when all have acknowledged")
        self.assertEqual(self.origin.count("/gate/shared"), 1)
        self.balance(self.client)

    def test_a_large_body_is_too_large_for_a_message_alone(self):
        url = f"{self.origin.url}/gate/large?bytes={MIB}"
        for form in ("auto", "inline", "file"):
            self.client.fetch(form, 1, url, deliver=form)
        self.await_requests(self.client, pending=3)
        self.origin.open_gate("large")
        for message in self.client.terminals(3):
            if message.id[0] == "inline":
                self.assertFailed(message, "too-large")
            else:
                self.check(message, body(MIB), is_file=True)
        self.client.set(f"inline-bytes {2 * MIB}")
        self.client.fetch("inline", 2, f"{self.origin.url}/bytes/{MIB}", deliver="inline")
        self.check(self.client.terminal(), body(MIB), is_file=False)

    def test_what_was_streamed_comes_in_a_message_to_who_asks_for_that(self):
        url = f"{self.origin.url}/steps/streamed?bytes=30000"
        self.client.fetch("stream", 1, url, stream="yes", progress=50)
        self.client.fetch("inline", 1, url, deliver="inline")
        self.client.expect("PROGRESS", "stream")
        self.origin.open_gate("streamed")
        forms = {message.id[0]: message for message in self.client.terminals(2)}
        self.check(forms["stream"], body(30_000), is_file=True)
        self.check(forms["inline"], body(30_000), is_file=False)

    def test_what_is_kept_comes_in_each_form_too(self):
        for size in (1000, 300_000):
            url = f"{self.origin.url}/kept/{size}?cc=max-age%3D1000&bytes={size}"
            self.client.fetch("first", size, url)
            content = self.client.terminal().content()
            for form in ("file", "inline", "auto"):
                self.client.fetch(form, size, url, deliver=form)
                message = self.client.terminal()
                if form == "inline" and size > 65_536:
                    self.assertFailed(message, "too-large")
                else:
                    self.assertEqual(message.fields["source"], "cache")
                    self.check(message, content, is_file=form == "file" or size > 65_536)
            self.assertEqual(self.origin.count(f"/kept/{size}"), 1)

    def test_nothing_is_no_file_and_a_full_disk_fails_who_wants_one(self):
        self.client.fetch("file", 1, f"{self.origin.url}/bytes/0", deliver="file")
        self.check(self.client.terminal(), b"", is_file=False)
        self.client.set("spool-size 1048576")
        holder = self.bus.client(window=8)
        holder.hold()
        holder.fetch("holder", 1, f"{self.origin.url}/bytes/1048000")
        self.check(holder.terminal(), body(1_048_000), is_file=True)
        for form in ("auto", "file"):
            self.client.fetch(form, 2, f"{self.origin.url}/gate/full?bytes=60000", deliver=form)
        self.await_requests(self.client, pending=2)
        self.origin.open_gate("full")
        forms = {message.id[0]: message for message in self.client.terminals(2)}
        self.check(forms["auto"], body(60_000), is_file=False)
        self.assertFailed(forms["file"], "spool-full")

    def test_a_file_that_waits_is_a_file_and_a_message_that_waits_is_one(self):
        """A result that waits in the spool for a slow reader keeps its form."""
        reader = self.bus.client(window=1)
        reader.hold()
        for number in range(40):
            # A request for this client alone would not be started.
            url = f"{self.origin.url}/gate/wait?bytes=60000&seed={number}"
            for form in ("file", "inline"):
                reader.fetch(form, number, url, deliver=form)
            self.client.fetch("other", number, url)
        self.await_requests(self.client, pending=120)
        self.origin.open_gate("wait")
        for message in self.client.terminals(40):
            self.check(message, body(60_000, message.id[1]), is_file=False)
        self.await_requests(self.client, answered=120)
        reader.release()
        for message in reader.terminals(80):
            self.check(message, body(60_000, message.id[1]), is_file=message.id[0] == "file")
        self.balance(self.client)
