internal import EarshotClient

/// Summary of the histograms in `QUERY status`, for display.
enum TimesReport {
    /// Percentiles that the summary shows.
    private static let percentiles = [50, 90, 99]

    /// Replaces the histograms of `times` by counts and percentiles. A percentile is the upper bound of its bucket.
    static func summarized(_ status: JSONValue) -> JSONValue {
        guard case .object(let members) = status else { return status }
        return .object(
            members.map { member in
                guard member.name == "times", case .object(let times) = member.value else { return member }
                let bounds = member.value.numbers("bounds-us")
                let summaries = times.filter { $0.name != "bounds-us" }.map { histogram in
                    JSONValue.Member(name: histogram.name, value: summary(histogram.value.numbers("buckets"), bounds))
                }
                return JSONValue.Member(name: "times", value: .object(summaries))
            })
    }

    private static func summary(_ buckets: [Int], _ bounds: [Int]) -> JSONValue {
        let count = buckets.reduce(0, +)
        var members = [JSONValue.Member(name: "count", value: .scalar("\(count)"))]
        for percentile in percentiles where count > 0 {
            // Rank of the observation, rounded up.
            let rank = (count * percentile + 99) / 100
            var seen = 0
            let bucket = buckets.firstIndex { number in
                seen += number
                return seen >= rank
            }
            let bound = bucket.flatMap { bounds.indices.contains($0) ? bounds[$0] : nil }
            let text = bound.map { "\(milliseconds($0)) ms" } ?? "above \(milliseconds(bounds.last ?? 0)) ms"
            members.append(JSONValue.Member(name: "p\(percentile)", value: .scalar(text)))
        }
        return .object(members)
    }

    /// A number of microseconds as milliseconds, without trailing zeros.
    private static func milliseconds(_ microseconds: Int) -> String {
        let (whole, part) = microseconds.quotientAndRemainder(dividingBy: 1_000)
        guard part > 0 else { return "\(whole)" }
        var digits = String(String(1_000 + part).dropFirst())
        while digits.hasSuffix("0") { digits.removeLast() }
        return "\(whole).\(digits)"
    }
}
