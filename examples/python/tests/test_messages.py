"""Tests of the codec with the vectors of the protocol."""

import unittest

from fixture import CHECKOUT
from earshot_bus._messages import Fetch, FetchOptions, check_handler, check_pattern, decode, encode, matches

VECTORS = CHECKOUT / "protocols/vectors"


class DecodingTests(unittest.TestCase):
    def test_every_good_vector_of_the_broker_is_read(self):
        vectors = sorted((VECTORS / "good/broker").glob("*.ear"))
        self.assertGreater(len(vectors), 20)
        for path in vectors:
            with self.subTest(path.name):
                head = path.read_bytes()
                message = decode([head])
                self.assertEqual(" ".join([message.verb, *message.operands]).encode(), head.split(b"\n")[0])

    def test_what_has_no_verb_of_the_broker_or_too_few_operands_is_refused(self):
        for head in (b"", b"\n", b"FETCH a b c\n", b"RESULT a b\nseq: 1\n", b"RESULT a b 200\n", b"WELCOME\n",
                     b"REMOVED a\n", b"FAILED a b\nseq: 1\n", b"RESULT a b 200\nseq: x\n",
                     b"RESULT a b c\nseq: 1\n", b"RESULT a b \xb2\nseq: 1\n", b"\xff\xfe"):
            with self.subTest(head), self.assertRaises(ValueError):
                decode([head])

    def test_of_two_fields_of_one_name_the_last_counts(self):
        message = decode([b"RESULT a b 200\nurl: x\nseq: 1\nseq:  2 \nxseq: 3"])
        self.assertEqual((message.sequence, message.field("seq"), message.field("xseq")), (2, "2", "3"))

    def test_fields_headers_and_body(self):
        message = decode([b"RESULT a/b 7 200\nseq: 3\nfile: /x y\n\nset-cookie: a: b\nset-cookie: c\nempty:\n",
                          b"body"])
        self.assertEqual(message.operands, ("a/b", "7", "200"))
        self.assertEqual([message.field(name) for name in ("seq", "file", "le", "set-cookie")],
                         ["3", "/x y", None, None])
        self.assertEqual(message.headers, (("set-cookie", "a: b"), ("set-cookie", "c"), ("empty", "")))
        self.assertEqual((message.number("seq"), message.number("length"), message.body), (3, None, b"body"))


class EncodingTests(unittest.TestCase):
    def test_what_is_said_is_in_the_vector_with_all_fields(self):
        digest = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"
        options = {"priority": "high", "method": "HEAD", "timeout": 1.25, "deadline": 9, "max_bytes": 1048576,
                   "redirect": "manual", "cache": "no-cache", "cookies": True, "retries": 0, "progress_ms": 100,
                   "sha256": digest.upper(), "decode": False, "warm": True,
                   "wait_ms": 250, "headers": {"accept": "image/*", "x-note": "a: b"}}
        self.assertEqual(options.keys() | {"on_progress"}, FetchOptions.__annotations__.keys())
        fetch = Fetch.make("gallery/42", "7", "https://example.org/a.png", options, replace=True)
        top, _, rest = (VECTORS / "good/client/FETCH-all-fields.ear").read_bytes().partition(b"\n\n")
        encoded, _, headers = fetch.encode(again=False).partition(b"\n\n")
        self.assertLessEqual(set(encoded.split(b"\n")), set(top.split(b"\n")))
        self.assertEqual(len(encoded.split(b"\n")), 1 + len(options), "each option is a field, and replace is one")
        self.assertEqual(headers.strip(), rest.strip())
        self.assertNotIn(b"replace", fetch.encode(again=True))

    def test_nothing_can_be_smuggled_into_a_head(self):
        for url, options in [
            ("http://x/ y", {}), ("http://x/\nACK 9", {}), ("", {}), ("http://x/" + "a" * 8192, {}),
            ("http://x/", {"headers": {"a": "b\nc: d"}}), ("http://x/", {"headers": {"a\n": "b"}}),
            ("http://x/", {"headers": [("", "b")]}),
            ("http://x/", {"headers": [("a", "b" * 1000)] * 70}), ("http://x/", {"method": "GET\nx: y"}),
        ]:
            with self.subTest(url=url[:20], options=str(options)[:60]), self.assertRaises(ValueError):
                Fetch.make("h", "1", url, options)

    def test_values_out_of_their_range_are_refused_before_they_are_said(self):
        for options in ({"timeout": 0}, {"timeout": 86401}, {"deadline": -1}, {"retries": 21}, {"progress_ms": 49},
                        {"priority": "urgent"}, {"redirect": "yes"}, {"cache": "yes"}, {"sha256": "12"},
                        {"max_bytes": -1}, {"timeout": float("nan")}):
            with self.subTest(options), self.assertRaises(ValueError):
                Fetch.make("h", "1", "http://x/", options)
        with self.assertRaises(TypeError):
            Fetch.make("h", "1", "http://x/", {"prioritty": "high"})

    def test_names_of_handlers_and_patterns(self):
        for good in ("a", "a/b", "a" * 200, "!~/x.y"):
            self.assertEqual(check_handler(good), good)
        for bad in ("", "/", "a//b", "/a", "a/", "a b", "ä", "a\n", "a" * 201):
            with self.subTest(bad), self.assertRaises(ValueError):
                check_handler(bad)
        self.assertEqual(check_pattern("a/b/"), "a/b/")
        for bad in ("/", "a//", ""):
            with self.subTest(bad), self.assertRaises(ValueError):
                check_pattern(bad)
        for pattern, handler, meant in [("a", "a", True), ("a", "a/b", False), ("a/", "a/b/c", True),
                                        ("a/", "a", False), ("a/", "ab", False)]:
            self.assertEqual(matches(pattern, handler), meant, (pattern, handler))

    def test_a_word_that_is_none_is_not_said(self):
        for word in ("", "a b", "a\n", "a\x7f"):
            with self.subTest(word), self.assertRaises(ValueError):
                encode("SET", word)
