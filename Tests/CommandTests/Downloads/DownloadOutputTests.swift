import ArgumentParser
import EarshotWire
import Testing

@testable import earshot

/// The file, the failure and the counters that a response of a run leaves.
@Suite struct DownloadOutputTests {
    private let folder = CommandFolder()
    private let item = OutputItem(entry: ListEntry(url: "http://h/a.txt"), index: 1, name: "a.txt")

    private func output(_ arguments: String...) throws -> DownloadOutput {
        DownloadOutput(
            to: try .folder(folder.path, interrupt: -1), try FileOptions.parse(arguments), heads: nil,
            isStreamable: false, start: 0)
    }

    private func outcome(_ status: Int, _ fields: String = "", code: String? = nil) -> FetchOutcome {
        var response = Terminal.Response(url: "http://h/a.txt")
        response.httpFields = Array(fields.utf8)
        response.sha256 = "00"
        return FetchOutcome(url: "http://h/a.txt", status: status, code: code, response: response)
    }

    /// Writes a body, and returns the result in words.
    private func write(_ output: inout DownloadOutput, _ outcome: FetchOutcome, _ item: OutputItem? = nil) -> String {
        switch output.write(.bytes(Array("new".utf8)), of: item ?? self.item, outcome, storeFailure: nil) {
        case .keptExisting(let reason, let path): "kept: \(reason) \(path == folder.path + "/a.txt")"
        case .finished(let outcome): "ended: \(outcome.code ?? outcome.path ?? "nowhere")"
        case .bodyMissing(let outcome): "missing: \(outcome.detail ?? "")"
        case .outputClosed: "closed"
        case .interrupted: "interrupted"
        }
    }

    @Test func `a response is written, and a failure is not`() throws {
        var output = try output()
        #expect(write(&output, outcome(404, code: "http-status")) == "ended: http-status")
        #expect(try folder.names == [])
        #expect(write(&output, outcome(200)) == "ended: \(folder.path)/a.txt")
        #expect(try folder.text("a.txt") == "new")
    }

    @Test func `an error page is written with --fail-body, and the failure stays`() throws {
        var output = try output("--fail-body")
        #expect(write(&output, outcome(404, code: "http-status")) == "ended: http-status")
        #expect(try folder.text("a.txt") == "new")
        var progress = Progress(
            handler: try #require(HandlerID("h")), request: try #require(RequestID("1")), receivedBytes: 1,
            totalBytes: nil)
        progress.status = 404
        #expect(!output.isUnwantedErrorPage(progress))
        #expect(try self.output().isUnwantedErrorPage(progress))
    }

    @Test func `--timestamping keeps a file that is as new`() throws {
        _ = try folder.file("a.txt", "old")
        var output = try output("--timestamping")
        #expect(write(&output, outcome(304)) == "kept: unchanged true")
        let old = "last-modified: Thu, 01 Jan 1970 00:00:01 GMT"
        #expect(write(&output, outcome(200, old)) == "kept: unchanged true")
        #expect(try folder.text("a.txt") == "old")
        let future = "last-modified: Fri, 31 Dec 9999 23:59:59 GMT"
        #expect(write(&output, outcome(200, future)) == "ended: \(folder.path)/a.txt")
        #expect(try folder.text("a.txt") == "new")
    }

    @Test func `a body that the broker sent and no file could hold is a failure with its cause`() throws {
        var output = try output()
        guard case .finished(let outcome) = output.write(.bytes([]), of: item, outcome(200), storeFailure: 28) else {
            Issue.record("not ended")
            return
        }
        #expect(outcome.code == "write-failed" && outcome.detail?.hasPrefix("cannot store the body") == true)
    }

    @Test func `a body whose file is gone may be sent again`() throws {
        var output = try output()
        let body = OutputBody.file(folder.path + "/spool", length: 3, isOwn: false)
        guard case .bodyMissing(let outcome) = output.write(body, of: item, outcome(200), storeFailure: nil) else {
            Issue.record("not missing")
            return
        }
        #expect(outcome.code == "write-failed" && outcome.detail == "its spool file is missing")
    }

    @Test func `--continue appends the rest, and takes no other range`() throws {
        _ = try folder.file("a.txt", "old ")
        var output = try output("--continue")
        var item = item
        item.partial = output.existingFile(item)
        #expect(item.partial?.length == 4)
        let time = "last-modified: Thu, 01 Jan 1970 00:00:01 GMT"
        #expect(write(&output, outcome(206, "content-range: bytes 9-11/12\n" + time), item) == "ended: write-failed")
        #expect(try folder.text("a.txt") == "old ")
        var rest = outcome(206, "content-range: bytes 4-6/7\n" + time)
        rest.response?.bodyByteCount = 3
        #expect(write(&output, rest, item) == "ended: \(folder.path)/a.txt")
        #expect(try folder.text("a.txt") == "old new")
        #expect(write(&output, outcome(416, "content-range: bytes */4"), item) == "kept: complete true")
    }
}
