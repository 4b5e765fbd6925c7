import EarshotWire
import Testing

@testable import EarshotCore

/// Histograms of times, and their part of `QUERY status`.
@Suite struct DurationHistogramTests {
    /// Index of the bucket of a duration in nanoseconds.
    private func bucket(_ nanoseconds: Int64) -> Int? {
        var histogram = DurationHistogram()
        histogram.recordDuration(from: MonotonicTime(nanoseconds: 5), to: MonotonicTime(nanoseconds: 5 + nanoseconds))
        return histogram.bucketValues.firstIndex(of: 1)
    }

    @Test func `an upper bound belongs to its bucket, and one nanosecond more to the next`() {
        #expect(DurationHistogram.upperBoundsMicroseconds.count == DurationHistogram.bucketCount - 1)
        for (index, bound) in DurationHistogram.upperBoundsMicroseconds.enumerated() {
            #expect(bucket(Int64(bound) * 1_000) == index)
            #expect(bucket(Int64(bound) * 1_000 + 1) == index + 1)
        }
    }

    @Test func `a duration of any size has a bucket`() {
        #expect(bucket(0) == 0)
        #expect(bucket(.max - 5) == DurationHistogram.bucketCount - 1)
        var histogram = DurationHistogram()
        histogram.recordDuration(from: MonotonicTime(nanoseconds: .min), to: MonotonicTime(nanoseconds: .max))
        histogram.recordDuration(from: MonotonicTime(nanoseconds: .max), to: MonotonicTime(nanoseconds: .min))
        #expect(histogram.bucketValues.first == 1 && histogram.bucketValues.last == 1 && histogram.count == 2)
    }
}

/// Times of requests in the reply to `QUERY status`.
@Suite struct RequestTimesTests {
    private var rig = CoreRig()

    private var counts: [Int] {
        [
            rig.core.requestTimes.waitHistogram.count, rig.core.requestTimes.transferHistogram.count,
            rig.core.requestTimes.totalHistogram.count,
        ]
    }

    @Test mutating func `a shared transfer is counted once, and the wait and total of each of its requests`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://a/", by: a) }
        let job = rig.jobs[0]
        rig.wait(milliseconds: 3)
        rig.pass { $0.fetch("h", "2", "http://a/", by: a) }
        rig.wait(milliseconds: 1)
        rig.pass { $0.done(job, by: worker, length: 7) }
        #expect(counts == [2, 1, 2])
        #expect(rig.core.requestTimes.waitHistogram.sumMicroseconds == 0)
        #expect(rig.core.requestTimes.transferHistogram.sumMicroseconds == 4_000)
        #expect(rig.core.requestTimes.totalHistogram.sumMicroseconds == 5_000)
        #expect(rig.core.ledger.flights.responseBodyBytes == 7)
    }

    @Test mutating func `a queued request has a wait`() {
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://a/", by: a) }
        rig.wait(milliseconds: 8)
        let worker = rig.worker()
        rig.pass()
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker) }
        #expect(rig.core.requestTimes.waitHistogram.sumMicroseconds == 8_000)
    }

    @Test mutating func `a failure without a response has a total only, and a removed request none`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://a/", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.failed(job, "tls", by: worker) }
        #expect(counts == [0, 0, 1])
        rig.pass { $0.fetch("h", "2", "http://b/", by: a) }
        rig.pass { $0.remove("h", by: a) }
        #expect(counts == [0, 0, 1])
    }

    @Test mutating func `status has the buckets and their bounds`() {
        let a = rig.client(1)
        rig.pass { $0.send(.query(.status), by: a) }
        var text = ""
        for case .client(.answerQuery(_, _, let json)) in rig.actions { text = String(decoding: json, as: UTF8.self) }
        let zeros = Array(repeating: "0", count: DurationHistogram.bucketCount).joined(separator: ",")
        #expect(text.contains(#""times":{"bounds-us":[125,250,500,1000,"#))
        #expect(text.contains(#"524288000],"wait":{"sum-us":0,"buckets":[\#(zeros)]},"transfer":{"#))
    }
}
