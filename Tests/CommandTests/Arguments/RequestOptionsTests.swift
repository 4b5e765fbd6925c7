import ArgumentParser
import EarshotWire
import Foundation
import Testing

@testable import earshot

/// Options of a request, and the FETCH that they make.
@Suite struct RequestOptionsTests {
    private static let url = "http://a.example/"

    private func head(_ arguments: [String]) throws -> [String] {
        let options = try RequestOptions.parse(arguments)
        let (handler, request) = (try #require(HandlerID("h")), try #require(RequestID("1")))
        let message = ClientMessage.fetch(
            options.makeFetch(handler: handler, request: request, url: Self.url, body: nil))
        return String(decoding: message.encoded(), as: UTF8.self).split(separator: "\n").dropFirst().map { String($0) }
    }

    @Test func `without options a request differs from the usual one in its cache mode alone`() throws {
        #expect(try head([]) == ["cache: explicit"])
    }

    @Test(arguments: [
        ["--priority", "high", "priority: high"], ["--timeout", "0.25", "timeout: 0.25"],
        ["--deadline", "9", "deadline: 9"], ["--max-bytes", "5", "max-bytes: 5"], ["--retries", "20", "retries: 20"],
        ["--redirect", "manual", "redirect: manual"], ["--cache", "no-store", "cache: no-store"],
        ["--proxy", "none", "proxy: none"], ["--cookies", "cookies: yes"],
    ])
    func `an option of the command is the field of its name`(words: [String]) throws {
        let (arguments, line) = (Array(words.dropLast()), words[words.count - 1])
        #expect(
            try head(arguments) == (line.hasPrefix("cache") ? [line] : [line, "cache: explicit"].sorted(by: order)))
    }

    @Test(arguments: [
        (["--user-agent", "me/1"], ["cache: explicit", "user-agent: me/1"]),
        (["-A", "me/1", "-H", "x: y"], ["cache: explicit", "x: y", "user-agent: me/1"]),
        (["-u", "u:p"], ["cache: explicit", "authorization: Basic dTpw"]),
        (["-I"], ["method: HEAD", "cache: explicit"]),
        (["--no-decode"], ["cache: explicit", "decode: no"]),
        (["--max-bytes", "2k"], ["max-bytes: 2048", "cache: explicit"]),
        (
            ["--checksum", "SHA256:" + String(repeating: "AB", count: 32)],
            ["cache: explicit", "digest: sha-256=" + String(repeating: "ab", count: 32)]
        ),
    ])
    func `an option of a downloader is a field or an option of the request`(arguments: [String], lines: [String]) throws
    {
        #expect(try head(arguments) == lines)
    }

    @Test(arguments: [
        ["--checksum", "md5:00"], ["--checksum", "sha256:00"], ["--checksum", String(repeating: "0", count: 64)],
        ["-I", "-X", "GET"], ["-I", "--data", "x"], ["-u", "secretword"], ["-u", "secret:word", "--netrc"],
        ["-A", "a\nb: c"], ["--max-bytes", "1.5M"],
    ])
    func `a contradiction or malformed value is refused without its secrets`(arguments: [String]) {
        do {
            _ = try RequestOptions.parse(arguments)
            Issue.record("taken: \(arguments)")
        } catch {
            #expect(!RequestOptions.message(for: error).contains("secret"))
        }
    }

    /// Order of fields in their table.
    private func order(_ left: String, _ right: String) -> Bool {
        let names = Fetch.Options.fieldRows.map(\.name)
        func place(_ line: String) -> Int { names.firstIndex { line.hasPrefix($0 + ":") } ?? -1 }
        return place(left) < place(right)
    }

    @Test(arguments: [
        ["--priority", "urgent"], ["--timeout", "soon"], ["--timeout", "0"], ["--deadline", "86401"],
        ["--max-bytes", "x"], ["--retries", "21"], ["--redirect", "never"], ["--cache", "some"],
    ])
    func `a wrong value is named with its option`(arguments: [String]) {
        do {
            _ = try RequestOptions.parse(arguments)
            Issue.record("taken: \(arguments)")
        } catch {
            let message = RequestOptions.message(for: error)
            #expect(message.contains(arguments[0]) && message.contains("'\(arguments[1])'"), "\(message)")
        }
    }

    @Test func `the help has each derived option once with its default`() {
        let help = RequestOptions.helpMessage(columns: 300)
        for field in Fetch.Options.fieldRows where field.help != nil {
            #expect(help.components(separatedBy: "--\(field.name) ").count == 2, "\(field.name)")
        }
        #expect(help.contains("default: explicit)") && help.contains("default: 60)"))
    }
}
