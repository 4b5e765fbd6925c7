import EarshotClient
import Testing

@testable import earshot

/// Percentiles of the histograms in `QUERY status`.
@Suite struct TimesReportTests {
    private func times(_ buckets: String) throws -> String {
        let json =
            #"{"phase":"serving","times":{"bounds-us":[125,1000,524288000],"wait":{"sum-us":9,"buckets":\#(buckets)}}}"#
        return TimesReport.summarizingHistograms(try #require(JSONValue(Array(json.utf8)))).reportText()
    }

    @Test func `a percentile is the upper bound of the bucket of its observation`() throws {
        #expect(
            try times("[50,40,10,0]")
                == "phase: serving\ntimes: wait (count 100, p50 0.125 ms, p90 1 ms, p99 524288 ms)\n")
        #expect(try times("[51,0,0,49]").contains("p50 0.125 ms, p90 above 524288 ms"))
    }

    @Test func `a histogram without observations has no percentiles`() throws {
        #expect(try times("[0,0,0,0]") == "phase: serving\ntimes: wait (count 0)\n")
        #expect(try times("[]") == "phase: serving\ntimes: wait (count 0)\n")
    }
}
