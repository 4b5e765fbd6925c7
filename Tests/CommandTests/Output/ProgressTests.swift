import EarshotClient
import Testing

@testable import earshot

/// The progress of a run: its rate, its times, its width and its lines.
@Suite struct TransferRateTests {
    @Test func `the rate is that of the last five seconds`() {
        var rate = TransferRate()
        #expect(rate.perSecond == nil)
        rate.add(0, at: 0)
        #expect(rate.perSecond == nil)
        rate.add(1_000, at: 500)
        #expect(rate.perSecond == 2_000)
        for second in 1...20 { rate.add(1_000 + Double(second) * 10, at: second * 1_000) }
        #expect(rate.perSecond == 10)
    }

    @Test func `a counter that falls starts a new window`() {
        var rate = TransferRate()
        rate.add(5_000, at: 0)
        rate.add(6_000, at: 1_000)
        rate.add(0, at: 2_000)
        #expect(rate.perSecond == nil)
        rate.add(100, at: 3_000)
        #expect(rate.perSecond == 100)
    }

    @Test func `a long run keeps few samples`() {
        var rate = TransferRate()
        for tick in 0..<10_000 { rate.add(Double(tick), at: tick) }
        #expect(rate.perSecond == 1_000)
        #expect(Mirror(reflecting: rate).children.allSatisfy { ($0.value as? [Any])?.count ?? 0 <= 32 })
    }
}

@Suite struct TimeTextTests {
    @Test(arguments: [(0, "0:00"), (41.2, "0:42"), (60, "1:00"), (3_723, "1:02:03"), (183_600, "2d 3h"), (-1, "0:00")])
    func `the remaining time is short`(seconds: Double, text: String) {
        #expect(TimeText.remaining(seconds) == text)
    }

    @Test(arguments: [(0, "0.0 s"), (12.36, "12.3 s"), (59.99, "59.9 s"), (61.9, "1:01")])
    func `the elapsed time has tenths below a minute`(seconds: Double, text: String) {
        #expect(TimeText.elapsed(seconds) == text)
    }
}

@Suite struct ColumnTextTests {
    @Test(arguments: [("abc", 3), ("e\u{301}", 1), ("日本", 4), ("", 0), ("\u{1f600}", 2)])
    func `wide characters take two columns and accents none`(text: String, width: Int) {
        #expect(ColumnText.width(text) == width)
    }

    @Test func `the middle of a long name is left out`() {
        #expect(ColumnText.shortened("a-very-long-name-of-a-file.tar.gz", to: 20) == "a-very-long...tar.gz")
        #expect(ColumnText.shortened("short", to: 5) == "short")
        for columns in 0...12 {
            #expect(ColumnText.width(ColumnText.shortened("日本語日本語日本語", to: columns)) <= columns)
            #expect(ColumnText.width(ColumnText.padded("日本語日本語日本語", to: columns)) == columns || columns < 18)
        }
    }
}

@Suite struct ProgressTextTests {
    private func tally(_ succeeded: Int, failed: Int = 0) -> Tally {
        var tally = Tally()
        tally.countSuccesses(succeeded)
        for _ in 0..<failed { tally.countOutcome(FetchOutcome(url: "u", code: "timeout", detail: "")) }
        return tally
    }

    private func transfer(_ name: String, _ received: Int, _ total: Int?) -> RunSnapshot.Transfer {
        RunSnapshot.Transfer(name: name, received: received, total: total)
    }

    private func lines(_ snapshot: RunSnapshot, columns: Int = 80, rows: Int = 24, color: Bool = false) -> [String] {
        ProgressText(columns: columns, rows: rows, hasColor: color).lines(snapshot)
    }

    @Test func `one file has name, percent, sizes, rate and remaining time`() {
        var snapshot = RunSnapshot(transfers: [transfer("film.iso", 1 << 20, 4 << 20)], bytesPerSecond: 1_048_576)
        #expect(lines(snapshot, columns: 70) == ["film.iso  [==       ]  25%  1.0 MiB of 4.0 MiB  1.0 MiB/s  ETA 0:03"])
        snapshot.transfers = [transfer("film.iso", 1 << 20, nil)]
        #expect(lines(snapshot) == ["film.iso  1.0 MiB of unknown size  1.0 MiB/s"])
        snapshot.transfers = []
        #expect(lines(snapshot) == [], "nothing has arrived")
        #expect(ProgressText.logLine(snapshot) == "nothing received yet")
    }

    @Test func `many files have their counts and the transfers that run`() {
        let snapshot = RunSnapshot(
            urlCount: 10, tally: tally(4, failed: 1),
            transfers: [transfer("a", 512, 1024), transfer("long.txt", 2_048, nil)],
            bytesPerSecond: 256, elapsedSeconds: 10)
        #expect(
            lines(snapshot) == [
                "[============             ]  5/10 files  1 failed  2.5 KiB  256 B/s  ETA 0:10",
                "  a          50%  512 B of 1.0 KiB",
                "  long.txt        2.0 KiB of unknown size",
            ])
        #expect(
            lines(snapshot, color: true)[0].contains("\u{1b}[31m1 failed\u{1b}[0m"),
            "the color does not change the text")
    }

    @Test func `bytes of an earlier attempt are not new`() {
        var resumed = RunSnapshot.Transfer(name: "a", received: 3_000, isResumable: true)
        resumed.progressed(3_500, of: 4_000)
        #expect(RunSnapshot(transfers: [resumed, transfer("b", 10, nil)]).newBytes == 510)
        // The server has another version.
        resumed.progressed(200, of: 5_000)
        resumed.progressed(300, of: 5_000)
        #expect(RunSnapshot(transfers: [resumed]).newBytes == 100)
    }

    @Test func `a list that is still read has no estimate`() {
        let snapshot = RunSnapshot(urlCount: 10, isReadingURLs: true, tally: tally(5), elapsedSeconds: 10)
        #expect(lines(snapshot) == ["5/10+ files  0 B"])
        #expect(ProgressText.logLine(snapshot) == "5/10+ files, 0 B")
    }

    @Test(arguments: [1, 2, 8, 12, 20, 21, 40, 80, 200], [2, 5, 24])
    func `lines fit the terminal`(columns: Int, rows: Int) {
        let names = ["a", String(repeating: "long", count: 80), String(repeating: "日本", count: 50)]
        var snapshot = RunSnapshot(urlCount: 1_000_000, tally: tally(123_456, failed: 7))
        snapshot.transfers = (0..<100).map { transfer(names[$0 % 3], 1 << 40, $0 % 2 == 0 ? 1 << 41 : nil) }
        snapshot.bytesPerSecond = 123_456_789
        snapshot.elapsedSeconds = 1e6
        snapshot.waitReason = "waiting: " + String(repeating: "x", count: 300)
        let shown = lines(snapshot, columns: columns, rows: rows)
        #expect(shown.count <= rows && shown.count >= min(rows, 2))
        #expect(shown.allSatisfy { ColumnText.width($0) < columns })
        #expect(
            rows < 24 || columns < 21 || shown.last == "  and 80 more" || shown.last == "  and 79 more")
        snapshot.urlCount = 1
        for name in ["a", names[2]] {
            snapshot.transfers = [transfer(name, 1, 3)]
            let plain = lines(snapshot, columns: columns, rows: rows)
            let colored = lines(snapshot, columns: columns, rows: rows, color: true)
            #expect(colored.map { $0.replacing(/\u{1b}\[\d+m/, with: "") } == plain, "colors take no columns")
        }
        #expect(lines(snapshot, columns: columns, rows: rows).allSatisfy { ColumnText.width($0) < columns })
    }

    @Test func `a log has the same in one line`() {
        var snapshot = RunSnapshot(transfers: [transfer("a.iso", 1 << 20, 2 << 20)], bytesPerSecond: 1_048_576)
        #expect(ProgressText.logLine(snapshot) == "a.iso 50% 1.0 MiB of 2.0 MiB, 1.0 MiB/s, ETA 0:01")
        snapshot.waitReason = "waiting: no worker"
        #expect(ProgressText.logLine(snapshot) == "a.iso 50% 1.0 MiB of 2.0 MiB, waiting: no worker")
        let many = RunSnapshot(urlCount: 3, tally: tally(1, failed: 1), elapsedSeconds: 4)
        #expect(ProgressText.logLine(many) == "2/3 files, 1 failed, 0 B, ETA 0:02")
    }
}

@Suite struct RunSummaryTests {
    @Test func `the summary has files, failures, bytes, time and sources`() {
        var tally = Tally()
        #expect(RunSummary(urlCount: 0, tally: tally, seconds: 0).text == "0 files, 0 B in 0.0 s")
        tally.countSuccesses(1)
        #expect(RunSummary(urlCount: 1, tally: tally, seconds: 1.25).text == "1 file, 0 B in 1.2 s")
        tally.countOutcome(FetchOutcome(url: "u", code: "timeout", detail: ""))
        #expect(
            RunSummary(urlCount: 9, tally: tally, replacedFileCount: 3, seconds: 75, isInterrupted: true).text
                == "interrupted: 1 of 9 files, 1 failed, 0 B in 1:15, 3 replaced")
        tally.countSkip()
        #expect(
            RunSummary(urlCount: 9, tally: tally, seconds: 1, isInterrupted: true, nextStep: "repeat it").text
                == "interrupted: 1 of 9 files, 1 failed, 0 B in 1.0 s, 1 skipped; repeat it")
        #expect(
            RunSummary(
                urlCount: 2, tally: Tally(), seconds: 1, isInterrupted: true, resumableBytes: 3_072,
                resumableFileCount: 1,
                lostBytes: 1_024
            ).text
                == "interrupted: 0 of 2 files, 0 B in 1.0 s, 3.0 KiB of 1 file kept, "
                + "1.0 KiB of unfinished files not kept (no strong validator)")
        tally = Tally()
        #expect(
            RunSummary(urlCount: nil, tally: tally, seconds: 1, isInterrupted: true).text
                == "interrupted: 0 of an unfinished list, 0 B in 1.0 s")
    }

    @Test func `kept bytes are all that an interruption before the first outcome has`() {
        var summary = RunSummary(
            urlCount: 9, tally: Tally(), seconds: 1, isInterrupted: true, resumableBytes: 3_250_586,
            resumableFileCount: 8,
            nextStep: "repeat it")
        #expect(summary.text == "interrupted: 3.1 MiB of 8 files kept; repeat it")
        summary.resumableFileCount = 1
        #expect(summary.text == "interrupted: 3.1 MiB of 1 file kept; repeat it")
        summary.tally.countSkip()
        #expect(
            summary.text == "interrupted: 0 of 9 files, 0 B in 1.0 s, 1 skipped, 3.1 MiB of 1 file kept; repeat it")
        summary.isInterrupted = false
        summary.tally.countOutcome(FetchOutcome(url: "u", code: "timeout", detail: ""))
        summary.nextStep = nil
        #expect(summary.text == "0 files, 1 failed, 0 B in 1.0 s, 1 skipped, 3.1 MiB of 1 file kept")
    }
}

@Suite struct WaitReasonTests {
    @Test(arguments: [
        (
            #"{"state":"queued","waits-for":"cool-down","origin":"http://h","cooling-ms":23100,"reason":"r"}"#,
            "waiting 24 s: http://h answered 429 or 503"
        ),
        (
            #"{"state":"queued","waits-for":"origin","origin":"http://h","running":6,"limit":6,"reason":"r"}"#,
            "waiting: 6 of 6 transfers from http://h run"
        ),
        (
            #"{"state":"queued","waits-for":"origin","origin":"http://h","running":5,"limit":6,"reason":"reserved"}"#,
            "waiting: 5 of 6 transfers run, and the last is reserved for class high"
        ),
        (
            #"{"state":"backing-off","waits-for":"retry","retry-in-ms":1,"reason":"r"}"#,
            "waiting 1 s: an attempt failed, and is repeated"
        ),
        (
            #"{"state":"queued","waits-for":"spacing","origin":"http://h","starts-in-ms":2000}"#,
            "waiting 2 s: spacing of transfers from http://h"
        ),
        (
            #"{"state":"queued","waits-for":"worker","reason":"no worker is connected"}"#,
            "waiting: no worker is connected"
        ),
        (#"{"state":"running","reason":"r","received":5}"#, "waiting: no data from the server for 7 s"),
        (#"{"state":"following","reason":"r"}"#, nil), (#"{"state":"unknown"}"#, nil), ("[]", nil),
    ])
    func `the broker's reason becomes one line`(answer: String, text: String?) throws {
        #expect(WaitReason.text(try #require(JSONValue(Array(answer.utf8))), idle: 7.9) == text)
    }
}

@Suite struct BinaryBodyTests {
    @Test(arguments: [
        ([], false), (Array("text\n\t\u{1b}[31m".utf8), false), (Array("\u{e4}".utf8), false), ([0x31, 0], true),
        ([0x1f, 0x8b, 8], true), ([UInt8](repeating: 0x20, count: 2_000) + [0], false),
    ])
    func `a control character makes a body binary`(bytes: [UInt8], isBinary: Bool) {
        #expect(BinaryBody.isBinary(bytes) == isBinary)
    }
}
