import ArgumentParser
import EarshotClient
import Glibc
import Testing

@testable import earshot

/// Messages about failures: their cause, their code and the next step.
@Suite struct MessageTests {
    private func failure(_ code: String, _ detail: String) -> String {
        FetchOutcome(url: "http://h/a?token", code: code, detail: detail).sentence(verbosely: false)
    }

    @Test func `a failure names URL, cause, code and the next step`() {
        #expect(failure("deadline", "It passed.") == "http://h/a?...: It passed (deadline); raise --deadline")
        #expect(failure("truncated", "cut off...") == "http://h/a?...: cut off... (truncated)")
        let detail = "Only spool-free is left; lower spool-free."
        #expect(
            failure("spool-full", detail) == "http://h/a?...: Only spool-free is left (spool-full); lower spool-free")
        #expect(failure("a-later-code", "odd") == "http://h/a?...: odd (a-later-code)")
    }

    @Test func `text that is no URL is a failure with its next step`() {
        let sentence = FetchOutcome(malformedURL: "http://h/a b").sentence(verbosely: true)
        #expect(sentence.hasPrefix("http://h/a b: malformed URL: ") && sentence.hasSuffix("; percent-encode it"))
    }

    @Test(arguments: [
        ("example.org", "write https://example.org"), ("example.org/a?t=s", "write https://example.org/a?..."),
        ("127.0.0.1:8080/x", "write http://127.0.0.1:8080/x"), ("[::1]:80/x", "write http://[::1]:80/x"),
    ])
    func `a URL without scheme is shown with one`(url: String, step: String) {
        let sentence = FetchOutcome(url: url, code: "malformed-url", detail: "no").sentence(verbosely: false)
        #expect(sentence.hasSuffix(": no (malformed-url); \(step)"))
    }

    @Test(arguments: ["http://[/", "u:p@h/", "/a", "http://h:99999/", "h:99999/"])
    func `another malformed URL gets no advice that does not help`(url: String) {
        let sentence = FetchOutcome(url: url, code: "malformed-url", detail: "no").sentence(verbosely: true)
        #expect(sentence.hasSuffix(": no (malformed-url)"))
    }

    @Test func `a host with a port is no scheme, and another scheme is one`() {
        func sentence(_ url: String) -> String {
            FetchOutcome(url: url, code: "unsupported-scheme", detail: "no").sentence(verbosely: true)
        }
        #expect(sentence("localhost:8080/x").hasSuffix("(unsupported-scheme); write http://localhost:8080/x"))
        #expect(sentence("ftp://h/x").hasSuffix("(unsupported-scheme); serve it with `earshot work`"))
        #expect(sentence("urn:isbn").hasSuffix("(unsupported-scheme); serve it with `earshot work`"))
    }

    @Test func `the next step of a detail follows the code, with options in place of fields`() {
        #expect(
            failure("tls", "Unknown issuer; give ca-file for a private CA.")
                == "http://h/a?...: Unknown issuer (tls); give --ca-file for a private CA")
        #expect(
            failure("tls", "It requires one; give client-certificate.")
                == "http://h/a?...: It requires one (tls); give --cert")
        #expect(failure("tls", "The certificate has expired.") == "http://h/a?...: The certificate has expired (tls)")
        #expect(failure("worker-failed", "a; b") == "http://h/a?...: a; b (worker-failed)")
    }

    @Test func `an empty URL is said to be empty, and a long one to be long`() {
        #expect(
            FetchOutcome(malformedURL: "").cause
                == "the URL is empty (malformed-url); give one such as https://example.org/")
        let long = FetchOutcome(malformedURL: "http://h/" + String(repeating: "a", count: 9_000)).cause
        #expect(long == "malformed URL: it exceeds 8192 bytes (malformed-url)")
    }

    @Test func `a directory in the way of a file of -d is not sent to -d`() throws {
        let folder = CommandFolder()
        var destination = try Destination.folder(folder.path, interrupt: -1)
        try #require(unsafe mkdir(folder.path + "/a", 0o700) == 0)
        #expect(
            performing: { try destination.write(.bytes([65]), of: "http://h/a") },
            throws: { error in
                guard case .cannotWrite(let sentence)? = error as? OutputFailure else { return false }
                return sentence.hasSuffix("/a: Is a directory; remove that directory, or give another name")
            })
    }

    @Test(arguments: ["0", "-1", "nan", "1e10"])
    func `a time outside its range is refused with both bounds`(seconds: String) {
        #expect(
            performing: { try WaitTimeoutOptions.parse(["--timeout=\(seconds)"]) },
            throws: { WaitTimeoutOptions.message(for: $0).contains("above 0, at most 1000000000") })
    }

    @Test func `a full disk is reported with its free space`() {
        let text = SystemCause.text(ENOSPC, at: "/")
        #expect(
            text.hasPrefix("No space left on device (")
                && text.hasSuffix(" free); free disk space, or choose another directory"))
        #expect(SystemCause.text(ENOSPC, at: "/no/such/folder/file").hasPrefix("No space left on device; "))
        #expect(SystemCause.text(ENOSPC, at: nil).hasPrefix("No space left on device; "), "not a file")
    }

    @Test(arguments: [(EACCES, "; choose a writable path"), (EISDIR, "; give -d for a directory"), (EIO, "error")])
    func `a common cause comes with the next step`(number: Int32, end: String) {
        #expect(SystemCause.text(number, at: "file").hasSuffix(end))
    }

    @Test(arguments: [
        (0.0, "0 B"), (999.0, "999 B"), (1000.0, "0.97 KiB"), (1023.0, "0.99 KiB"), (1536.0, "1.5 KiB"),
        (153_600.0, "150 KiB"), (5e12, "4656 GiB"),
    ])
    func `a size has a unit`(bytes: Double, text: String) {
        #expect(ByteSize.text(bytes) == text)
    }

    @Test func `a report continues a long line with an indent`() throws {
        let members = (1...9).map { #""member-\#($0)":\#($0)"# }.joined(separator: ",")
        let value = try #require(JSONValue(Array(#"{"all":{\#(members)},"list":[{\#(members)}]}"#.utf8)))
        let lines = value.reportText().split(separator: "\n")
        #expect(lines.allSatisfy { $0.count <= 79 })
        #expect(lines.first == "all: member-1 1, member-2 2, member-3 3, member-4 4, member-5 5, member-6 6,")
        #expect(lines.dropFirst().first == "    member-7 7, member-8 8, member-9 9")
        #expect(lines.last?.hasPrefix("      member-") == true)
    }

    @Test func `the help of each command groups its options and fits 80 columns`() throws {
        let help = Earshot.helpMessage(for: GetCommand.self, columns: 80)
        let titles = ["INPUT:", "OUTPUT:", "REQUEST:", "HTTP:", "NETWORK:", "BUS:", "OPTIONS:"]
        #expect(help.split(separator: "\n").map { String($0) }.filter(titles.contains) == titles)
        let groups = Earshot.configuration.groupedSubcommands.flatMap(\.subcommands)
        let commands = groups + CacheCommand.configuration.subcommands
        #expect(commands.count > 15)
        for command in commands {
            for line in Earshot.helpMessage(for: command, columns: 80).split(separator: "\n") {
                #expect(line.count <= 80 || line.hasPrefix("USAGE:"), "\(command): \(line)")
            }
        }
    }

    @Test func `the examples of the help stay on their lines`() {
        let groups = Earshot.configuration.groupedSubcommands.flatMap(\.subcommands)
        for command in [Earshot.self] + groups + CacheCommand.configuration.subcommands {
            for line in Earshot.helpMessage(for: command, columns: 400).split(separator: "\n") {
                #expect(line.count < 80 || !line.hasPrefix("  earshot "), "\(command): \(line)")
            }
        }
    }

    @Test func `each option belongs to one section of the help`() {
        for name in ["redirect", "cache", "cookies", "timeout", "a-later-option"] {
            #expect(HTTPSection.contains(name) != HandlingSection.contains(name))
        }
    }
}
