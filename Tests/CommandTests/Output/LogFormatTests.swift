import EarshotLoop
import Foundation
import Logging
import Testing

@testable import earshot

/// The forms of log lines: text, logfmt, JSON and the journal's.
@Suite struct LogFormatTests {
    private func entry(
        _ message: String, _ fields: [(name: String, value: String)] = [], process: String = "broker",
        time: String? = "2026-11-22T09:45:00.123Z"
    ) -> LogFormat.Entry {
        LogFormat.Entry(
            time: time, level: .warning, process: process, processID: 7, message: message, fields: fields)
    }

    @Test func `text is for people`() {
        let fields = [(name: "pid", value: "9"), (name: "url", value: "http://a/\u{1b}[1m")]
        #expect(
            LogFormat.text.line(entry("lost", fields))
                == "2026-11-22T09:45:00.123Z earshot broker[7]: warning: lost pid=9 url=http://a/\\u{1b}[1m")
        #expect(LogFormat.text.line(entry("ready", process: "serve", time: nil)) == "earshot: ready")
    }

    @Test func `logfmt quotes values that are no plain word`() {
        let fields = [
            (name: "pid", value: "9"), (name: "none", value: ""), (name: "equal", value: "a=b"),
            (name: "quote", value: "a\"b\\"), (name: "line", value: "a\nb"), (name: "umlaut", value: "ü"),
        ]
        #expect(
            LogFormat.logfmt.line(entry("worker lost", fields))
                == "time=2026-11-22T09:45:00.123Z level=warning process=broker process-id=7 message=\"worker lost\""
                + #" pid=9 none="" equal="a=b" quote="a\"b\\" line="a\u000ab" umlaut="\u00fc""#)
    }

    @Test func `json is an object in one line`() throws {
        let line = LogFormat.json.line(entry("a \"b\" \\ \n\u{1f600}\u{7f}", [(name: "handler", value: "h")]))
        #expect(line.utf8.allSatisfy { (0x20...0x7e).contains($0) })
        struct Line: Decodable, Equatable {
            let time: String, level: String, process: String, message: String, handler: String
        }
        #expect(
            try JSONDecoder().decode(Line.self, from: Data(line.utf8))
                == Line(
                    time: "2026-11-22T09:45:00.123Z", level: "warning", process: "broker",
                    message: "a \"b\" \\ \n\u{1f600}\u{7f}", handler: "h"))
    }

    @Test func `numbers of json are numbers, and names with digits are strings`() {
        let fields = [
            (name: "request", value: "1"), (name: "status", value: "200"), (name: "pid", value: "07"),
            (name: "bytes", value: ""),
        ]
        #expect(
            LogFormat.json.line(entry("ended", fields, time: nil))
                == #"{"level":"warning","process":"broker","process-id":7,"message":"ended","request":"1","status":200,"#
                + #""pid":"07","bytes":""}"#)
    }

    @Test func `priorities are those of syslog`() {
        #expect(Logger.Level.allCases.map(ServiceLog.priority) == [7, 7, 6, 5, 4, 3, 2])
    }

    @Test(arguments: [nil, "", "1:2", "x"])
    func `another stream is not the journal`(stream: String?) {
        #expect(!ServiceLog.isStandardError(stream))
    }

    @Test func `copies of a logger have one level`() {
        let logger = LineLog.logger("broker", .notice, .text)
        var copy = logger
        copy.logLevel = .debug
        #expect(logger.logLevel == .debug)
    }

    @Test func `a time has three digits of milliseconds`() {
        #expect(CalendarTime.nowWithMilliseconds().contains(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/))
    }
}
