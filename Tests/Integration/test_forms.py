"""A body has the form that each request wants, even if it is shared."""

import os
import stat

from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import eventually


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
