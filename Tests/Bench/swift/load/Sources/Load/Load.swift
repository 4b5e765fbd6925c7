import Glibc

/// Sends all requests of the plan, a number of them at once, and prints one line of JSON.
///
/// - Parameter fetch: returns the body of a URL.
public func load(_ plan: Plan, fetch: @escaping @Sendable (String) async throws -> [UInt8]) async throws {
    let began = now()
    // Task n of N sends the requests n, n + N, …: the tasks share no state.
    let results = try await withThrowingTaskGroup(of: Part.self) { group in
        for index in 0..<min(plan.outstanding, plan.requests) {
            group.addTask { try await Part.fetched(plan, from: index, by: fetch) }
        }
        return try await group.reduce(into: [Part]()) { $0.append($1) }
    }
    let seconds = Double(now() - began) / 1e9
    let times = results.flatMap(\.times).sorted()
    func microseconds(_ share: Double) -> Double { Double(times[Int(Double(times.count - 1) * share)]) / 1e3 }
    print(
        """
        {"answers": \(times.count), "seconds": \(seconds), "bytes": \(results.reduce(0) { $0 + $1.bytes }), \
        "sum": \(results.reduce(0) { $0 + $1.sum }), "cpu": \(processorSeconds()), "p50": \(microseconds(0.5)), \
        "p99": \(microseconds(0.99)), "p999": \(microseconds(0.999))}
        """)
}

/// A response has the wrong size.
struct WrongAnswer: Error {
    let size: Int
}

/// Results of one task.
private struct Part: Sendable {
    var times: [UInt64] = []
    var bytes = 0
    var sum = 0

    static func fetched(
        _ plan: Plan, from first: Int, by fetch: @Sendable (String) async throws -> [UInt8]
    ) async throws -> Part {
        var part = Part()
        for number in stride(from: first, to: plan.requests, by: plan.outstanding) {
            let url = plan.url(number)
            let sent = now()
            let body = try await fetch(url)
            guard body.count == plan.size else { throw WrongAnswer(size: body.count) }
            part.times.append(now() - sent)
            part.bytes += body.count
            if plan.sums { part.sum += Int(checksum(body)) }
        }
        return part
    }
}

private func now() -> UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
}

private func processorSeconds() -> Double {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    return Double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
        + Double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6
}

private let checksumTable: [UInt32] = (0..<256).map { byte in
    var value = UInt32(byte)
    for _ in 0..<8 {
        let polynomial: UInt32 = value & 1 == 1 ? 0xEDB8_8320 : 0
        value = (value >> 1) ^ polynomial
    }
    return value
}

/// Returns the CRC-32 of zlib.
private func checksum(_ bytes: [UInt8]) -> UInt32 {
    var value = ~UInt32(0)
    for byte in bytes {
        value = checksumTable[Int(UInt8(truncatingIfNeeded: value) ^ byte)] ^ (value >> 8)
    }
    return ~value
}
